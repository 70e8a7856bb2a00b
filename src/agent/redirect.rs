//! The triggers of a redirect, which refuses clients with a stale route once the last row of
//! their keys has left. There is one redirect for a namespace and keyspace, whatever the
//! number of splits: what a writer pays depends neither on how many there were nor on what
//! they took.

use super::shape::{Column, TableShape};
use super::state::redirect::Redirect;
use crate::remote::quote::ident;

/// What a redirect looks at, with a trigger for each. Most updates leave the key alone: they
/// are asked for the new row's alone, since each look costs the tenants that stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Insert,
    Update,
    /// An update that sets the column, of the row as it was.
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
    /// Of a table by its number: one that becomes a partition of another has its own beside the clones of the other's.
    pub fn trigger_name(&self, write: Write, shape: &TableShape) -> String {
        format!("{}{}_{}", self.trigger_prefix(), write.letter(), shape.oid.as_deref().unwrap_or_default())
    }

    /// One of a table's triggers, made to fire always; that goes over to clones. The column
    /// is known by its number, whatever name it gets.
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
