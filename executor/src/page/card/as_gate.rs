//! A card as JSON, for a client with an API key: the same content, without what only a browser can use.

use ground::page_client::api_client::{
    Gate, GateCaller, GateChange, GateField, GateFile, GateForm, GateNeed, PlainText,
};
use ground::task::confirmation::Assurance;
use protocol::invisible;
use protocol::task::TaskId;
use runner::ask_user::UserQuestion;

use super::cascade::ShownCascade;
use super::dry_run::ShownDryRun;
use super::{Card, ShownChange, ShownField, ShownFile};
use crate::page::diff::LineDiff;
use crate::page::form::words;
use crate::page::visible::{VisibleText, plain_line};
use crate::page::wording::StartTime;

impl Card {
    /// `question` is what the task asks, if it asks one.
    pub(in crate::page) fn into_gate(self, id: TaskId, question: Option<&UserQuestion>) -> Gate {
        let needs = self.need(question);
        let touches: Vec<_> = self.touches.iter().map(|touched| invisible::escaped(touched)).collect();
        let folder = plain_line(&self.asked.folder).text;
        Gate {
            id,
            summary: summary(&self, question, &touches),
            needs,
            effect: self.effect,
            effect_words: self.effect_words.to_owned(),
            danger: self.danger,
            own: false,
            why: invisible::escaped(&self.why),
            reason: self.reason.map(|reason| reason.plain()),
            asked_by: GateCaller {
                user: self.asked.user,
                uid: self.asked.uid,
                folder,
                session: self.asked.session.map(|session| plain_line(&session).text),
                client: self.asked.client.map(|client| plain_line(&client).text),
                key: None,
                at: self.asked.moment.at,
            },
            starts: self.starts.as_ref().map(StartTime::plain),
            expires_at: self.expires.at,
            fields: self.fields.iter().map(ShownField::as_gate).collect(),
            would_send: self.would_send.plain(),
            touches,
            runs: self.runs.iter().map(ShownFile::as_gate).collect(),
            reads: self.reads.iter().map(ShownFile::as_gate).collect(),
            change: self.change.as_ref().map(ShownChange::as_gate),
            would_change: self.would_change.as_ref().map(ShownDryRun::as_gate),
            unknown: self.unknown.as_deref().map(invisible::escaped),
            marks: self.background.mark_words(),
            digest: self.digest,
            subtool: self.tool,
            description: invisible::escaped(&self.description),
        }
    }

    /// What a decision needs. A touch and a secret are given on the page alone.
    fn need(&self, question: Option<&UserQuestion>) -> GateNeed {
        if self.assurance > Assurance::Page {
            return GateNeed::Touch;
        }
        match question {
            Some(question) if self.link.is_some() || question.asks_for_secrets() => GateNeed::Page,
            Some(question) => {
                let text = self.question.as_ref().map_or_else(PlainText::default, VisibleText::plain);
                GateNeed::Answer { question: text, form: GateForm(words::shown(&question.schema)) }
            }
            // It asks, but what it asks is not valid any more.
            None if self.kind == "question" => {
                GateNeed::Answer { question: PlainText::default(), form: GateForm::default() }
            }
            None if self.word.is_empty() => GateNeed::Click,
            None => GateNeed::Word { word: self.word.clone() },
        }
    }
}

fn summary(card: &Card, question: Option<&UserQuestion>, touches: &[String]) -> String {
    if question.is_some() {
        return format!("{} asks you a question", card.tool);
    }
    let reached = if touches.is_empty() { String::new() } else { format!(", at {}", touches.join(", ")) };
    let starts = card.starts.as_ref().map_or_else(String::new, |starts| format!("; it starts {}", starts.plain()));
    format!("{} {}{reached}{starts}", card.tool, card.effect_words)
}

impl ShownField {
    fn as_gate(&self) -> GateField {
        GateField {
            name: plain_line(&self.label).text,
            value: self.value.plain(),
            decoded: self.value.plain_decoded(),
            replaces: self.replaces.as_ref().map(VisibleText::plain),
            diff: self.diff.as_ref().map(LineDiff::plain),
            is_default: self.default,
        }
    }
}

impl ShownFile {
    fn as_gate(&self) -> GateFile {
        GateFile {
            role: self.role.to_owned(),
            path: plain_line(&self.path).text,
            owner: self.owner.clone(),
            bytes: self.bytes,
            sha256: self.sha256.clone(),
            warning: self.writable.map(|_| self.writable_words.to_owned()),
        }
    }
}

impl ShownChange {
    fn as_gate(&self) -> GateChange {
        GateChange {
            rows_affected: self.rows_affected,
            replaced: self.replaced,
            shown: self.shown,
            diff: self.diff.as_ref().map(LineDiff::plain),
            rows: self.rows.as_ref().map(VisibleText::plain),
            sets_off: self.sets_off.iter().map(|words| invisible::escaped(words)).collect(),
            cascades: self.cascades.iter().map(ShownCascade::as_gate).collect(),
            set_by_database: self.set_by_database.iter().map(VisibleText::plain).collect(),
        }
    }
}
