//! The triggers of a redirect, which refuses clients with a stale route once the last row of their keys has left.
//! There is one redirect for a namespace and keyspace, whatever the number of splits: the cost for a writer depends
//! neither on how many there were nor on what they moved.

use super::shape::{Column, TableShape};
use super::state::redirect::Redirect;
use crate::remote::quote::ident;

/// The writes that a redirect checks, with a trigger for each. Most updates do not change the key: for them only the
/// new row is checked, since each check costs the tenants that stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Insert,
    Update,
    /// An update that sets the column; the old row is checked.
    Rekey,
    Delete,
}

impl Write {
    pub const ALL: [Write; 4] = [Write::Insert, Write::Update, Write::Rekey, Write::Delete];

    fn letter(self) -> char {
        match self {
            Write::Insert => 'i',
            Write::Update => 'u',
            Write::Rekey => 'k',
            Write::Delete => 'd',
        }
    }
}

impl Redirect {
    /// Returns a trigger's name with the table's number: a table that becomes a partition of another has its own
    /// trigger beside the clones of the other's.
    pub fn trigger_name(&self, write: Write, shape: &TableShape) -> String {
        format!("{}{}_{}", self.trigger_prefix(), write.letter(), shape.oid.as_deref().unwrap_or_default())
    }

    /// Returns one of a table's triggers, set to fire always, which clones inherit. The column is given by its number,
    /// whatever name it gets.
    pub fn trigger(&self, column: &Column, shape: &TableShape, write: Write) -> String {
        let (name, table) = (ident(&self.trigger_name(write, shape)), &shape.name);
        let by = ident(&column.name);
        let refused = |row: &str| {
            let (filter, function) = (self.filter_function(), self.function());
            format!("shardmaster_agent.{filter}({row}.{by}) AND shardmaster_agent.{function}({row}.{by})")
        };
        let (event, when) = match write {
            Write::Insert => ("INSERT".to_owned(), refused("NEW")),
            Write::Update => ("UPDATE".to_owned(), refused("NEW")),
            Write::Rekey => (
                format!("UPDATE OF {by}"),
                format!("OLD.{by} IS DISTINCT FROM NEW.{by} AND {}", refused("OLD")),
            ),
            Write::Delete => ("DELETE".to_owned(), refused("OLD")),
        };
        format!(
            "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION shardmaster_agent.redirect();
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};"
        )
    }
}
