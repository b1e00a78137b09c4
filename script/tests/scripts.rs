//! Scripts against a small host: each runs in this process, on a thread of its own, over pipes.

mod scripts {
    pub(crate) mod host;
    pub(crate) mod hostile;
    pub(crate) mod lines;
    pub(crate) mod models;
    pub(crate) mod node;
    pub(crate) mod replay;
}
