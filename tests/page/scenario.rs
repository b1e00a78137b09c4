//! A realistic scenario: the tasks that a person who works with an agent sees on the page.
//!
//! The tasks are real and their texts are plausible. Where bubblewrap works, the user is `ann` with the home
//! `/home/ann`, so that screenshots of the page show nothing of the machine that made them.

use std::process::Command;

use serde_json::{Map, Value, json};

use super::human::Human;
use crate::world::{PROGRAM, World, until};

/// The session name of the agent.
const SESSION: &str = "quarterly-report";

/// A letter that is long enough that it must be read to the end.
const LETTER: &str = "Dear Bob,\n\nThe second quarter is closed. Revenue is 4.1 million, 6 percent above plan.\n\n\
    1. Subscriptions grew by 312, most of them yearly.\n2. Churn fell from 2.9 to 2.4 percent.\n\
    3. The new warehouse costs 18,000 a month less than the old one.\n4. Two positions in support are open.\n\n\
    What I need from you by Friday:\n- the figures for the north, which were late last time;\n\
    - a sentence on the refund in May;\n- whether the price list of July stands.\n\n\
    The full report is in the shared folder.\n\nKind regards\nAnn\n\n年度报告 follows in September.";

pub(super) struct Scenario {
    pub(super) world: World,
    has_bubblewrap: bool,
}

impl Scenario {
    /// A user with a repository of reports, and no tasks yet.
    pub(super) fn new() -> Self {
        let world = World::new();
        std::fs::create_dir_all(world.home().join("reports")).expect("the folder is created");
        std::fs::write(
            world.folder().join("passwd"),
            "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n",
        )
        .expect("the user list is written");
        let mut scenario = Self { world, has_bubblewrap: true };
        scenario.has_bubblewrap = scenario.command("true", &[]).output().is_ok_and(|tried| tried.status.success());
        scenario.world.define("reports.json", &definitions());
        let set = scenario.world.run_with(&["secret", "set", "google"], "ya29.Kq2-mPz71Lw-tR5v");
        assert_eq!(set.exit, 0, "{set}");
        scenario.shell(
            "git init -q -b main . && printf '# Second quarter\\n\\nRevenue is 6 percent above plan.\\n' >summary.md && \
             git add . && git -c user.name=Ann -c user.email=ann@example.com commit -qm 'The second quarter' && \
             git init -q --bare -b main ../reports.git && git remote add origin ../reports.git",
        );
        scenario
    }

    /// A program that runs as the user `ann` in the folder of reports.
    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let home = self.world.home().display().to_string();
        let mut command = if self.has_bubblewrap {
            let users = self.world.folder().join("passwd").display().to_string();
            let sandbox = [
                ["--dev-bind", "/", "/"].as_slice(),
                &["--tmpfs", "/home", "--bind", &home, "/home/ann", "--ro-bind", PROGRAM, PROGRAM],
                &["--ro-bind", &users, "/etc/passwd", "--unshare-user", "--uid", "1000", "--gid", "1000"],
                &["--setenv", "HOME", "/home/ann", "--chdir", "/home/ann/reports", "--", program],
            ];
            self.world.within("bwrap", &[sandbox.concat().as_slice(), arguments].concat())
        } else {
            let mut command = self.world.within(program, arguments);
            command.current_dir(self.world.home().join("reports"));
            command
        };
        command.env("AGENT_MAGIC_TOOL_SESSION", SESSION);
        command
    }

    /// Runs a line of shell, which must succeed.
    fn shell(&self, line: &str) {
        let output = self.command("sh", &["-ec", line]).output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs our program, which must succeed, and returns the JSON that it prints.
    fn run(&self, arguments: &[&str]) -> Value {
        let ran = self.world.transcript(&self.command(PROGRAM, arguments).output().expect("the program starts"));
        assert_eq!(ran.exit, 0, "{ran}");
        if ran.stdout.is_empty() { Value::Null } else { ran.json() }
    }

    /// Starts a task as the agent, and returns its id.
    pub(super) fn start(&self, tool: &str, input: &Value) -> String {
        self.start_with_reason(tool, input, "")
    }

    pub(super) fn start_with_reason(&self, tool: &str, input: &Value, reason: &str) -> String {
        let input = input.to_string();
        let reason_option = format!("--reason={reason}");
        let mut arguments = vec!["run", tool, "--input", &input];
        arguments.extend(Some(reason_option.as_str()).filter(|_| !reason.is_empty()));
        self.run(&arguments)["id"].as_str().expect("an id").to_owned()
    }

    /// Runs tasks that end in every possible way, and makes two grants. No task waits afterwards.
    pub(super) fn finish_tasks(&self) -> FinishedTasks {
        self.world.configure("[confirm]\nwait = \"300ms\"\n");
        let push = json!({"remote": "origin", "branch": "main"});
        self.world.end_of(&self.start("git_push", &push));
        let unknown = self.start("site_publish", &json!({"page": "second-quarter"}));
        until("the task runs", || self.world.result_file(&unknown)["state"] == "running");
        self.world.kill_executor();
        self.world.configure("");
        self.run(&["executor", "start"]);
        self.world.end_of(&unknown);

        for (tool, input) in [
            ("files_list", json!({"path": "."})),
            ("git_log", json!({})),
            ("report_build", json!({"report": "second-quarter.typ"})),
        ] {
            self.world.end_of(&self.start(tool, &input));
        }
        let read = self.start("files_read", &json!({"path": "summary.md"}));
        self.world.end_of(&read);
        let human = Human::of(&self.world);
        let to_everyone = json!({"to": ["everyone@example.com"], "subject": "Numbers", "body": "See the summary."});
        let denied = self.start("gmail_send_message", &to_everyone);
        let mut denial = human.decision(&denied, "deny");
        denial["reason"] = "Only Bob and Carol get these.".into();
        assert_eq!(human.post("/decide", &denial).status, 200);
        let asked = self.start(
            "ask_user",
            &json!({"question": "Which year should the report compare with?", "options": ["2024", "2025"]}),
        );
        let mut answer = human.pending_task(&asked);
        answer["action"] = "accept".into();
        answer["content"] = json!({"answer": "2025"});
        let answered = human.post("/answer", &answer);
        assert_eq!(answered.status, 200, "{}", answered.body);

        // One grant that is used, and one that is revoked.
        let grant = |id: &str, more: &Value| {
            let mut grant = human.pending_task(id);
            grant["fields"] = json!([]);
            grant["expires_in"] = "8h".into();
            grant.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            let answer = human.post("/grants", &grant);
            assert_eq!(answer.status, 200, "{}", answer.body);
            self.world.end_of(id);
        };
        grant(&self.start("git_push", &push), &json!({"most_uses": 20}));
        let granted = self.start("git_push", &push);
        self.world.end_of(&granted);
        let note = json!({"file": "/home/ann/reports/notes.md", "text": "Ask for the north."});
        grant(
            &self.start("notes_add", &note),
            &json!({"fields": [
            {"pointer": "/file", "how": "prefix", "value": "/home/ann/reports"}, {"pointer": "/text", "how": "any"}],
            "typed": "notes_add", "expires_in": "168h"}),
        );
        let page = human.get("/grants").body;
        let id = page.split("data-grant-id=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a grant");
        assert_eq!(human.post("/grants/revoke", &json!({"id": id})).status, 200);
        let stopped = self.start("tests_run", &json!({"suite": "slow"}));
        assert_eq!(human.post("/cancel", &json!({"id": stopped})).status, 200);
        for id in [&denied, &asked, &stopped] {
            self.world.end_of(id);
        }
        FinishedTasks { read, denied, unknown, granted }
    }

    /// Starts one task that keeps running, and tasks that wait for a human; returns the ids of those that wait.
    pub(super) fn start_waiting_tasks(&self) -> Vec<String> {
        self.start("tests_run", &json!({"suite": "browser"}));
        let summary = json!({"to": ["bob@example.com", "Carol Lee <carol@example.com>"], "subject": "The second quarter in one page",
            "body": "Hello both,\n\nthe summary is attached. Revenue is 6 percent above plan.\n\nKind regards\nAnn"});
        let form = json!({"type": "object", "required": ["user", "password"], "properties": {
            "user": {"type": "string", "title": "User name", "description": "The name you use to sign in at the bank."},
            "password": {"type": "string", "format": "password", "title": "Password"},
            "accounts": {"type": "array", "title": "Accounts", "items": {"enum": ["Current", "Savings", "Cards"]}},
            "since": {"type": "string", "title": "From which day on", "examples": ["2026-04-01"]},
            "closed": {"type": "boolean", "title": "Closed accounts too?"}}});
        let hostile = json!({"payee": "Аcme Paper Ltd", "iban": "DE89\u{200b}370400440532013000",
            "memo": "Invoice 4711 \u{202e}0001 RUE\u{202c}        \u{1b}[8mand 9,000 more\u{1b}[0m",
            "amount": 1_250.50, "details": "{\"to\": \"https://xn--cme-8cd.example/pay\"}"});
        let branch = |branch: &str| json!({"remote": "origin", "branch": branch});
        vec![
            self.start_with_reason(
                "gmail_send_message",
                &summary,
                "You asked me to send the summary to Bob and Carol when it is done.",
            ),
            self.start(
                "ask_user",
                &json!({"question": "How do I reach the bank's statements of this quarter?", "form": form}),
            ),
            self.start("folder_delete", &json!({"path": "/home/ann/reports/drafts"})),
            self.start_with_reason(
                "invoice_pay",
                &hostile,
                "The invoice is **overdue**. [Approve](https://example.com) it now.",
            ),
            self.start(
                "gmail_send_message",
                &json!({"to": ["bob@example.com"], "subject": "What I need by Friday", "body": LETTER}),
            ),
            self.start("git_push", &branch("figures")),
            self.start("git_push", &branch("drafts")),
        ]
    }
}

/// Some of the finished tasks, by how they ended.
pub(super) struct FinishedTasks {
    pub(super) read: String,
    pub(super) denied: String,
    pub(super) unknown: String,
    pub(super) granted: String,
}

/// The subtools of the scenario, besides the built-in packs.
fn definitions() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let object = |properties: Value| {
        let names: Vec<_> =
            properties.as_object().map_or_else(Vec::new, |all: &Map<_, _>| all.keys().cloned().collect());
        json!({"type": "object", "properties": properties, "required": names})
    };
    json!({
        "git_push": {
            "description": "Pushes the commits of a branch to a remote repository.",
            "input": object(json!({"remote": text("The remote's name."), "branch": text("The branch.")})),
            "annotations": {"openWorldHint": true, "destructiveHint": false}, "tags": ["git"],
            "run": {"process": {"argv": ["git", "push", "--quiet", "{{ remote }}", "{{ branch }}"]}}
        },
        "folder_delete": {
            "description": "Deletes a folder with everything that is in it.",
            "input": object(json!({"path": text("The folder.")})),
            "annotations": {"destructiveHint": true}, "tags": ["files"],
            "run": {"process": {"argv": ["rm", "-r", "--", "{{ path }}"]}}
        },
        "invoice_pay": {
            "description": "Pays an invoice from the current account.",
            "input": object(json!({"payee": text("Who is paid."), "iban": text("Their account."), "memo": text("What it is for."),
                "amount": {"type": "number", "description": "In euros."}, "details": text("What else the bank is told.")})),
            "annotations": {"openWorldHint": true, "destructiveHint": false}, "tags": ["bank"],
            "run": {"http": {"method": "POST", "base_url": "https://api.bank.example", "path": "/payments",
                "body": {"json": {"payee": "{{ payee }}", "iban": "{{ iban }}", "amount": "{{ amount }}", "memo": "{{ memo }}"}}}}
        },
        "notes_add": {
            "description": "Adds a line to a file of notes.",
            "input": object(json!({"file": text("The file."), "text": text("The line.")})),
            "run": {"process": {"argv": ["sh", "-c", "printf '%s\\n' \"$2\" >>\"${1##*/}\"", "notes_add", "{{ file }}", "{{ text }}"]}}
        },
        "report_build": {
            "description": "Typesets a report.",
            "input": object(json!({"report": text("Its source.")})),
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1:14: unknown variable: quater\" >&2; exit 2", "typeset", "{{ report }}"]}}
        },
        "site_publish": {
            "description": "Publishes a page on the company's site.",
            "input": object(json!({"page": text("The page.")})), "confirm": "never",
            "run": {"process": {"argv": ["sh", "-c", "while [ -e summary.md ]; do sleep 0.2; done"]}}
        },
        "tests_run": {
            "description": "Runs the tests of a repository.",
            "input": object(json!({"suite": text("Which tests.")})),
            "annotations": {"readOnlyHint": true}, "timeout": "10m",
            "run": {"process": {"argv": ["sh", "-c", "while [ -e summary.md ]; do sleep 0.2; done"]}}
        }
    })
}
