//! Remarks: what a check cannot call right or wrong, and the split's operator takes as it is, by name. One is known by the
//! check that makes it and by what it is about: two names that no text for people decides. Until it is accepted it stops
//! the split before anything moves.

use crate::clean;

/// The checks that make remarks. Another kind is another variant here, and `Finding::remark` where it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remark {
    /// Values that mean something on the server that gave them.
    ServerValues,
    /// Values that name large objects, which do not move.
    LargeObjects,
    /// What the source's table has beside its columns, and the target's has not.
    Lacking,
    /// What the target's table has alone, and may fail for a row.
    Alone,
    /// Rows whose numbers their sequence is yet to give out.
    NumbersBeyond,
    /// Sequences of keys that nobody can tell from other words.
    SequencesOfKeys,
    /// Tables in no keyspace that functions of the moving tables read or write.
    NamedTables,
    /// Sequences that functions may draw from, and that cannot be raised.
    SequencesOfFunctions,
    /// Event triggers that let a trial through, and may not let all through that a split does.
    EventTriggers,
    /// Values of keys that come from something that is not followed.
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

    /// As shard_split_check() shows it and shard_split_accept() takes it; kept with plans, so it stays.
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

    /// Whether it stops a split that has begun, too, which nobody can accept it for any more: rows would lose what they mean.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Remark::ServerValues | Remark::LargeObjects)
    }

    pub fn parse(text: &str) -> Option<Remark> {
        Remark::ALL.into_iter().find(|remark| remark.check_name() == text)
    }
}

/// An object's name as it is shown, kept and compared: what a terminal obeys is in none.
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
