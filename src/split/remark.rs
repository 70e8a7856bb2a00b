//! Remarks: what a check cannot judge, and the split's operator accepts by name. A remark is identified by the check
//! that makes it and by its object: names, which do not depend on any text for people. Until it is accepted it stops
//! the split before anything moves.

use crate::clean;

/// The checks that make remarks. For another kind, add a variant here, and call `Finding::remark` where it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remark {
    /// Values that have a meaning only on the server that gave them.
    ServerValues,
    /// Values that name large objects, which do not move.
    LargeObjects,
    /// What the source's table has besides its columns, and the target's does not have.
    Lacking,
    /// What only the target's table has, and may refuse a row.
    Alone,
    /// Rows whose numbers their sequence will give out later.
    NumbersBeyond,
    /// Sequences of keys whose names cannot be distinguished from other words.
    SequencesOfKeys,
    /// Tables in no keyspace that functions of the moving tables read or write.
    NamedTables,
    /// Sequences that functions may draw from, and that cannot be raised.
    SequencesOfFunctions,
    /// Event triggers that admit a trial, and may not admit all that a split does.
    EventTriggers,
    /// Values of keys whose origin is not followed.
    KeysUnfollowed,
}

impl Remark {
    pub const ALL: [Remark; 10] = [
        Remark::ServerValues,
        Remark::LargeObjects,
        Remark::Lacking,
        Remark::Alone,
        Remark::NumbersBeyond,
        Remark::SequencesOfKeys,
        Remark::NamedTables,
        Remark::SequencesOfFunctions,
        Remark::EventTriggers,
        Remark::KeysUnfollowed,
    ];

    /// Returns the name that shard_split_check() shows and shard_split_accept() takes; it is stored with plans, so it
    /// does not change.
    pub fn check_name(self) -> &'static str {
        match self {
            Remark::ServerValues => "source: values of one server",
            Remark::LargeObjects => "source: large objects",
            Remark::Lacking => "target: missing beside columns",
            Remark::Alone => "target: of its own beside columns",
            Remark::NumbersBeyond => "source: numbers beyond their sequence",
            Remark::SequencesOfKeys => "source: sequences of keys",
            Remark::NamedTables => "source: tables that functions name",
            Remark::SequencesOfFunctions => "source: sequences of functions",
            Remark::EventTriggers => "event triggers",
            Remark::KeysUnfollowed => "source: values of keys",
        }
    }

    /// Whether it also stops a split that has begun, for which it can no longer be accepted: rows would lose their
    /// meaning.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Remark::ServerValues | Remark::LargeObjects)
    }

    pub fn parse(text: &str) -> Option<Remark> {
        Remark::ALL.into_iter().find(|remark| remark.check_name() == text)
    }
}

/// Returns an object's name as it is shown, stored and compared, without characters that control a terminal.
pub fn object(text: &str) -> String {
    clean::message(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_by_which_it_is_read_back() {
        for remark in Remark::ALL {
            assert_eq!(Remark::parse(remark.check_name()), Some(remark));
            assert_eq!(clean::message(remark.check_name()), remark.check_name());
        }
    }
}
