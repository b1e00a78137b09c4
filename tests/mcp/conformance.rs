//! The conformance suite of the protocol's makers.
