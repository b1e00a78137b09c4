"""An MCP server that wants a sign-in, and the authorization server that it names: both of the official Python SDK.

Adds a line to the file `log` for each thing that happens, with the tokens it is given. POST /control sets what the next
sign-in does: `iss` names another issuer, `deny` refuses; with `leak`, tools are not listed,
and the error has the token; with `slow`, a renewal takes as many seconds. POST /revoke forgets all tokens. Prints its port.
"""

import asyncio
import json
import secrets
import socket
import sys
import time

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from starlette.responses import JSONResponse

log_path, lifetime = sys.argv[1], int(sys.argv[2])
listener = socket.socket()
listener.bind(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
port = listener.getsockname()[1]
origin = f"http://127.0.0.1:{port}"
control = {}


def log(*words):
    with open(log_path, "a", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n")


class Provider:
    """Consents at once, and rotates refresh tokens."""

    def __init__(self):
        self.clients, self.codes, self.tokens, self.refresh = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        log("register", *map(str, client_info.redirect_uris))
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        log("authorize", " ".join(params.scopes or []))
        if control.get("deny"):
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state, iss=origin)
        code = secrets.token_hex(20)
        self.codes[code] = AuthorizationCode(
            code=code, scopes=params.scopes or [], expires_at=time.time() + 60, client_id=client.client_id,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource)
        return construct_redirect_uri(
            str(params.redirect_uri), code=code, state=params.state, iss=control.get("iss", origin))

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    def issue(self, client, scopes, resource):
        access, refresh = "access-" + secrets.token_hex(20), "refresh-" + secrets.token_hex(20)
        self.tokens[access] = AccessToken(token=access, client_id=client.client_id, scopes=scopes,
                                          expires_at=int(time.time()) + lifetime, resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes, resource=resource)
        return OAuthToken(access_token=access, expires_in=lifetime, refresh_token=refresh, scope=" ".join(scopes))

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        log("exchange", str(authorization_code.resource))
        return self.issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        log("refresh", refresh_token.token)
        await asyncio.sleep(control.get("slow", 0))
        del self.refresh[refresh_token.token]
        return self.issue(client, scopes, refresh_token.resource)

    async def load_access_token(self, token):
        log("token", token)
        return self.tokens.get(token)

    async def revoke_token(self, token):
        pass


provider = Provider()
server = MCPServer(
    name="account", auth_server_provider=provider,
    auth=AuthSettings(
        issuer_url=origin, resource_server_url=f"{origin}/mcp", required_scopes=["read"], validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read", "write"], default_scopes=["read"])))


@server.tool()
def whoami(echo: str = "") -> str:
    """Tells who is signed in; repeats the token if asked to."""
    token = get_access_token()
    log("whoami")
    return f"client {token.client_id} with {' '.join(token.scopes)} {token.token if echo == 'token' else ''}".strip()


@server.tool()
def change() -> str:
    """Needs the scope `write`."""
    log("change")
    return "changed"


@server.custom_route("/control", methods=["POST"])
async def set_control(request):
    control.clear()
    control.update(await request.json())
    return JSONResponse({})


@server.custom_route("/revoke", methods=["POST"])
async def revoke(_):
    provider.tokens.clear()
    provider.refresh.clear()
    return JSONResponse({})


class StepUp:
    """Answers 403 to a call of `change` without the scope `write`, as the protocol's text says."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/mcp" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        bearer = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        token = provider.tokens.get(bearer)
        try:
            call = json.loads(body)
        except ValueError:
            call = {}
        if token and call.get("method") == "tools/list" and control.get("leak"):
            error = {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32000, "message": f"no tools for {bearer}"}}
            answer = json.dumps(error).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [
                (b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]})
            return await send({"type": "http.response.body", "body": answer})
        if token and call.get("method") == "tools/call" and call["params"]["name"] == "change" \
                and "write" not in token.scopes:
            challenge = ('Bearer error="insufficient_scope", scope="write", resource_metadata="'
                         f'{origin}/.well-known/oauth-protected-resource/mcp"')
            await send({"type": "http.response.start", "status": 403,
                        "headers": [(b"www-authenticate", challenge.encode()), (b"content-length", b"0")]})
            return await send({"type": "http.response.body", "body": b""})
        was_read = False

        async def again():
            nonlocal was_read
            if was_read:
                return await receive()
            was_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


app = StepUp(server.streamable_http_app())
listener.listen(64)
print(port, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])
