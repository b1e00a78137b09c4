//! Search: finds the right subtool among any number of them.
//!
//! An index is one file, written once for each state of the definitions and read in place: a query reads the words it
//! asks for and nothing else. Knows documents and their words; what a definition is, and who may use it, is up to the
//! catalog.
