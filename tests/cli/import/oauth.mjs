// An API for clients of npm's oidc-provider, and that provider, at one address. Prints it. The path says where the provider
// looks for the credentials of its only client.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.argv[2] + '/');
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const client_id = 'the client:1';
const client_secret = 's3:cr+t%&-of-the-client-0123456789';
const providers = {};
const api = async (request, response) => {
  const [, method] = request.url.split('/');
  const provider = providers[method];
  if (!provider) return response.writeHead(404).end();
  if (!request.url.endsWith('/things')) {
    request.url = request.url.slice(method.length + 1);
    // The provider itself looks at both places.
    if (method === 'client_secret_post') delete request.headers.authorization;
    return provider.callback()(request, response);
  }
  const token = await provider.ClientCredentials.find((request.headers.authorization ?? '').replace(/^Bearer /, ''));
  response.writeHead(token ? 200 : 401, { 'content-type': 'application/json' });
  response.end(JSON.stringify(token ? { client: token.clientId, scope: token.scope } : { message: 'no' }));
};
const server = createServer(api);
server.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  for (const method of ['client_secret_basic', 'client_secret_post']) {
    providers[method] = new Provider(`${url}/${method}`, {
      clients: [{ client_id, client_secret, token_endpoint_auth_method: method, grant_types: ['client_credentials'],
        redirect_uris: [], response_types: [] }],
      clientAuthMethods: [method],
      features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
      scopes: ['things'],
    });
  }
  console.log(url);
});
