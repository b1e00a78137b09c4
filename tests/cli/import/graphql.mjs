// A shop that is asked in GraphQL, with npm's graphql and graphql-http. Prints its address.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(process.argv[2] + '/');
const { buildSchema, GraphQLError } = require('graphql');
const { createHandler } = require('graphql-http/lib/use/http');

const schema = buildSchema(`
  type Query {
    "Finds an order by its number."
    order(number: Int!): Order
    orders(status: Status, first: Int, after: String): OrderConnection!
    search(text: String!): [Found!]!
  }
  type Mutation {
    "Places an order."
    createOrder(input: CreateOrderInput!): CreateOrderPayload!
    deleteOrder(number: Int!): Boolean!
  }
  enum Status { OPEN PAID }
  type Order { number: Int! status: Status! note: String lines: [Line!]! }
  type Line { sku: String! count: Int! }
  type Person { name: String! number: String }
  union Found = Order | Person
  type OrderConnection { nodes: [Order!]! pageInfo: PageInfo! }
  type PageInfo { hasNextPage: Boolean! endCursor: String }
  input CreateOrderInput { lines: [LineInput!]! note: String in: String }
  input LineInput { sku: String! count: Int = 1 }
  type CreateOrderPayload { order: Order }
`);

const orders = [{ number: 1, status: 'PAID', note: 'first', lines: [{ sku: 'A', count: 2 }] }];
const rootValue = {
  order: ({ number }) => {
    if (number === 13) throw new GraphQLError('no luck with this number');
    return orders.find((order) => order.number === number) ?? null;
  },
  orders: ({ first }) => ({ nodes: orders.slice(0, first), pageInfo: { hasNextPage: orders.length > first } }),
  search: () => [{ __typename: 'Order', ...orders[0] }, { __typename: 'Person', name: 'Ann', number: '7' }],
  createOrder: ({ input }) => {
    if (input.note === 'refuse') throw new GraphQLError('the shop is closed');
    const order = { number: orders.length + 1, status: 'OPEN', note: input.note, lines: input.lines };
    orders.push(order);
    return { order };
  },
  deleteOrder: () => true,
};
const server = createServer(createHandler({ schema, rootValue }));
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/graphql`));
