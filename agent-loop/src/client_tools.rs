//! The tools of a client beside our own one: the model may call them, and the client performs them.
//!
//! When a model calls only tools of the client, the loop stops (`machine.rs`), and the client gets the calls. In a turn
//! with calls of both kinds, ours are performed, and the model is told to make the others by themselves.

use std::pin::Pin;
use std::sync::Arc;

use protocol::data_class::DataClass;

use super::driver::{CallOrigin, TaskReporter, Tools};
use crate::model::conversation::{ToolCall, ToolResult};
use crate::model::provider::ToolDefinition;

/// The result of a call of a client's tool in a turn that also calls ours.
const NOT_ALONE: &str = "[agent-magic-tool] Not called: a turn may call either this tool or `command_executor`. The other calls of this turn were performed. If this one is still needed, make it again by itself.";

/// Our own tools, and those of a client.
pub(super) struct WithClientTools {
    own: Arc<dyn Tools>,
    definitions: Vec<ToolDefinition>,
}

impl WithClientTools {
    pub(super) fn new(own: Arc<dyn Tools>, definitions: Vec<ToolDefinition>) -> Self {
        Self { own, definitions }
    }

    fn has(&self, call: &ToolCall) -> bool {
        self.definitions.iter().any(|tool| tool.name == call.name)
    }
}

impl Tools for WithClientTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let own = self.own.definitions().into_iter();
        own.chain(self.definitions.iter().cloned()).collect()
    }

    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        origin: CallOrigin,
        report: TaskReporter,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>> {
        if self.has(call) {
            return Box::pin(async { ToolResult { only_reads: true, ..ToolResult::new(call, NOT_ALONE, 0) } });
        }
        self.own.call(call, origin, report)
    }

    fn needs_human<'a>(&'a self, call: &'a ToolCall) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        if self.has(call) { Box::pin(async { false }) } else { self.own.needs_human(call) }
    }

    fn trust(&self, trust: DataClass) {
        self.own.trust(trust);
    }

    fn ensure_executor(&self) {
        self.own.ensure_executor();
    }
}
