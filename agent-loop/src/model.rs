//! Language models: the configured models, the conversation with a model, and the requests to its provider.

pub mod answer_options;
pub mod conversation;
pub mod fallback;
pub mod ledger;
pub mod prompt;
pub mod provider;
pub mod registry;
pub mod reported_usage;
pub mod view;
