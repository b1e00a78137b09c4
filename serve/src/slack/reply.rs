//! The messages that show one answer in its thread, while it is written and when it is complete.
//!
//! A pure account of what stands in Slack and what should: it names the next call, and is told how the call went. The
//! text of an answer can only be lost by a call that is not made.

use super::split::messages;

/// Slack cuts what is longer than about 4,000.
const MAX_MESSAGE: usize = 3900;
/// Below this size, a message that Slack finds too long is given up.
const MIN_MESSAGE: usize = 400;

/// A message that stands in Slack.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PostedMessage {
    ts: String,
    /// What it says; `None` if that is not known, after a restart.
    text: Option<String>,
}

/// The next call that brings Slack up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplyCall {
    Post { text: String },
    Update { ts: String, text: String },
    Delete { ts: String },
}

/// What stands in Slack of one answer, and what should.
#[derive(Debug)]
pub(crate) struct SlackReply {
    text: String,
    /// How many bytes of the text are the preface, which is not void if the answer starts over.
    preface_bytes: usize,
    limit: usize,
    wanted: Vec<String>,
    posted: Vec<PostedMessage>,
    /// Messages that are no longer part of the answer.
    obsolete: Vec<String>,
    /// Slack lets us not edit here: what is written is posted when it is complete.
    no_edits: bool,
}

impl SlackReply {
    /// An answer of which these messages, posted before a restart, are to be used again.
    pub(crate) fn new(messages: Vec<String>) -> Self {
        let posted = messages.into_iter().map(|ts| PostedMessage { ts, text: None }).collect();
        let (text, wanted, obsolete) = (String::new(), Vec::new(), Vec::new());
        Self { text, preface_bytes: 0, limit: MAX_MESSAGE, wanted, posted, obsolete, no_edits: false }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds what is read before the answer. It comes before the rest.
    pub(crate) fn push_preface(&mut self, text: &str) {
        self.push(text);
        self.preface_bytes = self.text.len();
    }

    /// Adds a paragraph of its own.
    pub(crate) fn push_paragraph(&mut self, text: &str) {
        if !self.text.trim().is_empty() {
            // What is added must not become a part of a code block that was not closed.
            if is_in_code(&self.text) {
                self.text.push_str("\n```");
            }
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }

    /// The answer so far is void.
    pub(crate) fn restart(&mut self) {
        self.text.truncate(self.preface_bytes);
    }

    /// Shows this text instead.
    pub(crate) fn replace(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// What was written so far is complete; what follows stands in messages of its own.
    pub(crate) fn settle(&mut self) {
        self.text.clear();
        self.preface_bytes = 0;
        self.wanted.clear();
        self.posted.clear();
    }

    /// The messages that can still be edited.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.posted.iter().map(|message| message.ts.clone()).collect()
    }

    /// Whether a call is worth making before the text is complete.
    pub(crate) fn may_stream(&self) -> bool {
        !self.no_edits && !self.text.trim().is_empty()
    }

    /// The next call; `None` if Slack is up to date.
    pub(crate) fn next_call(&mut self) -> Option<ReplyCall> {
        self.wanted = messages(&self.text, self.limit);
        for (number, text) in self.wanted.iter().enumerate() {
            match self.posted.get(number) {
                None => return Some(ReplyCall::Post { text: text.clone() }),
                Some(message) if message.text.as_ref() != Some(text) => {
                    return Some(ReplyCall::Update { ts: message.ts.clone(), text: text.clone() });
                }
                Some(_) => {}
            }
        }
        let surplus = self.posted.get(self.wanted.len()).map(|message| message.ts.clone());
        surplus.or_else(|| self.obsolete.last().cloned()).map(|ts| ReplyCall::Delete { ts })
    }

    /// The call succeeded; a new message has this time stamp.
    pub(crate) fn succeeded(&mut self, call: &ReplyCall, new: Option<&str>) {
        match (call, new) {
            (ReplyCall::Post { text }, Some(ts)) => {
                self.posted.push(PostedMessage { ts: ts.to_owned(), text: Some(text.clone()) });
            }
            // Slack always names it; without its name, the message cannot be edited.
            (ReplyCall::Post { text }, None) => {
                self.posted.push(PostedMessage { ts: String::new(), text: Some(text.clone()) });
            }
            (ReplyCall::Update { ts, text }, _) => {
                if let Some(message) = self.posted.iter_mut().find(|message| message.ts == *ts) {
                    message.text = Some(text.clone());
                }
            }
            (ReplyCall::Delete { ts }, _) => self.drop_message(ts),
        }
    }

    /// Slack refuses the call. Returns false if the answer can never be shown.
    pub(crate) fn refused(&mut self, call: &ReplyCall, error: &str) -> bool {
        match call {
            ReplyCall::Post { .. } | ReplyCall::Update { .. } if error == "msg_too_long" => {
                self.limit /= 2;
                self.limit >= MIN_MESSAGE
            }
            ReplyCall::Post { .. } => false,
            ReplyCall::Update { ts, .. } => {
                if matches!(error, "edit_window_closed" | "cant_update_message") {
                    self.no_edits = true;
                }
                // It and all that follow are posted anew, so that the order stays.
                let at = self.posted.iter().position(|message| message.ts == *ts).unwrap_or(self.posted.len());
                let later = self.posted.split_off(at);
                self.obsolete.extend(later.into_iter().map(|message| message.ts).filter(|ts| !ts.is_empty()));
                true
            }
            ReplyCall::Delete { ts } => {
                // It is gone already, or has to stay.
                self.drop_message(ts);
                true
            }
        }
    }

    fn drop_message(&mut self, ts: &str) {
        self.posted.retain(|message| message.ts != ts);
        self.obsolete.retain(|other| other != ts);
    }
}

fn is_in_code(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slack: it applies calls, and refuses some of them.
    #[derive(Default)]
    struct Board {
        messages: Vec<(String, String)>,
        count: usize,
        refusals: Vec<&'static str>,
    }

    impl Board {
        fn catch_up(&mut self, reply: &mut SlackReply) -> bool {
            for _ in 0..1000 {
                let Some(call) = reply.next_call() else { return true };
                if let Some(error) = self.refusals.pop() {
                    if !reply.refused(&call, error) {
                        return false;
                    }
                    continue;
                }
                let mut new = None;
                match &call {
                    ReplyCall::Post { text } => {
                        self.count += 1;
                        self.messages.push((self.count.to_string(), text.clone()));
                        new = Some(self.count.to_string());
                    }
                    ReplyCall::Update { ts, text } => {
                        let message = self.messages.iter_mut().find(|(known, _)| known == ts).expect("posted");
                        message.1.clone_from(text);
                    }
                    ReplyCall::Delete { ts } => self.messages.retain(|(known, _)| known != ts),
                }
                reply.succeeded(&call, new.as_deref());
            }
            panic!("it never ends: {reply:?}");
        }

        fn shown(&self) -> String {
            self.messages.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("|")
        }
    }

    #[test]
    fn one_message_is_edited_while_the_text_grows() {
        let (mut reply, mut board) = (SlackReply::new(Vec::new()), Board::default());
        assert_eq!(reply.next_call(), None);
        for text in ["**a", "b** ", "c"] {
            reply.push(text);
            assert!(board.catch_up(&mut reply));
        }
        assert_eq!((board.shown().as_str(), board.count), ("*ab* c", 1));
        reply.push(&"\n\nmore words".repeat(1000));
        assert!(board.catch_up(&mut reply));
        assert!(board.messages.len() > 2);
        reply.restart();
        reply.push("short");
        assert!(board.catch_up(&mut reply));
        assert_eq!(board.shown(), "short", "the rest was deleted");
    }

    #[test]
    fn what_cannot_be_edited_is_posted_anew() {
        for error in ["message_not_found", "edit_window_closed", "cant_update_message"] {
            let (mut reply, mut board) = (SlackReply::new(Vec::new()), Board::default());
            reply.push("one");
            assert!(board.catch_up(&mut reply));
            reply.push(" two");
            board.refusals = vec![error];
            assert!(board.catch_up(&mut reply));
            assert_eq!((board.shown().as_str(), board.count), ("one two", 2), "the other one was deleted");
            assert_eq!(reply.may_stream(), error == "message_not_found");
        }
    }

    #[test]
    fn a_message_that_is_too_long_for_slack_is_cut_smaller() {
        let (mut reply, mut board) = (SlackReply::new(Vec::new()), Board::default());
        reply.push(&"words ".repeat(600));
        board.refusals = vec!["msg_too_long"];
        assert!(board.catch_up(&mut reply));
        assert_eq!(board.messages.len(), 2);
        board.refusals = vec!["msg_too_long"; 9];
        reply.push("more");
        assert!(!board.catch_up(&mut reply), "given up");
    }

    #[test]
    fn messages_of_before_a_restart_are_used_again() {
        let mut board =
            Board { messages: vec![("7".into(), "half".into()), ("8".into(), "x".into())], ..Board::default() };
        let mut reply = SlackReply::new(vec!["7".into(), "8".into()]);
        assert!(!reply.may_stream());
        reply.push("the whole answer");
        assert!(board.catch_up(&mut reply));
        assert_eq!(board.shown(), "the whole answer");
    }

    #[test]
    fn what_waits_ends_a_message_and_a_paragraph_closes_code() {
        let (mut reply, mut board) = (SlackReply::new(Vec::new()), Board::default());
        reply.push("before");
        assert!(board.catch_up(&mut reply));
        reply.settle();
        assert_eq!(reply.next_call(), None);
        reply.push("```\ncode");
        reply.push_paragraph("stopped");
        assert!(board.catch_up(&mut reply));
        assert_eq!(board.shown(), "before|```\ncode\n```\n\nstopped");
    }
}
