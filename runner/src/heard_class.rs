//! What an invocation got from other tasks, by its class.

use std::sync::{Arc, Mutex, PoisonError};

use protocol::data_class::DataClass;

/// The most sensitive class of data that an invocation got from other tasks. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct HeardClass(Arc<Mutex<Option<DataClass>>>);

impl HeardClass {
    /// Notes that it got data of this class.
    pub fn hear(&self, class: Option<DataClass>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = (*heard).max(class);
    }

    pub fn most(&self) -> Option<DataClass> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
