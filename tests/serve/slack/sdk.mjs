// Slack's own SDKs, as an app would use them: an echo that says what happens to it, one line of JSON each.
//
// node sdk.mjs PACKAGES API_URL APP_TOKEN BOT_TOKEN

import { createRequire } from "node:module";
import { join } from "node:path";

const [, , packages, slackApiUrl, appToken, botToken] = process.argv;
const require = createRequire(join(packages, "index.js"));
const { SocketModeClient, LogLevel } = require(join(packages, "@slack/socket-mode"));
const { WebClient } = require(join(packages, "@slack/web-api"));

const say = (value) => console.log(JSON.stringify(value));
const logLevel = LogLevel.ERROR;
const web = new WebClient(botToken, { slackApiUrl, logLevel });
// The pause before a reconnection is the client's timeout for pings.
const socket = new SocketModeClient({ appToken, logLevel, clientPingTimeout: 500, clientOptions: { slackApiUrl } });

const error = async (call) => {
  try {
    await call();
  } catch (failure) {
    return failure.data?.error ?? String(failure);
  }
  return "no error";
};

let first = true;
socket.on("connected", () => say({ connected: true }));
socket.on("app_mention", async ({ ack, event, retry_num }) => {
  await ack();
  say({ mention: event.text, retry: retry_num, user: event.user });
  if (!first) return;
  first = false;
  const { channel } = event;
  const blocks = [
    { type: "section", text: { type: "mrkdwn", text: "edited" } },
    {
      type: "actions",
      elements: [
        { type: "button", action_id: "agent_magic_tool_no", value: "a task", text: { type: "plain_text", text: "No" } },
      ],
    },
  ];
  const { ts } = await web.chat.postMessage({ channel, text: "an echo", thread_ts: event.ts });
  await web.chat.update({ channel, ts, text: "edited", blocks });
  say({ posted: ts });
});
socket.on("interactive", async ({ ack, body }) => {
  await ack();
  const [action] = body.actions;
  const { message_ts: message } = body.container;
  say({ action: action.action_id, value: action.value, user: body.user.id, message });
  const other = (token) => new WebClient(token, { slackApiUrl, logLevel });
  say({
    errors: [
      await error(() => web.chat.update({ channel: body.channel.id, ts: "1.1", text: "?" })),
      await error(() => other("xoxb-wrong").auth.test()),
      await error(() => other(appToken).auth.test()),
    ],
  });
});

const { user_id, team_id } = await web.auth.test();
say({ identity: { user_id, team_id } });
process.stdin.on("end", () => process.exit(0)).resume();
await socket.start();
