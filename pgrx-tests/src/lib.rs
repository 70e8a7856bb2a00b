//! Real servers, several sessions, crashes and load.
