//! Names in texts that a shard's server resolves anew in each statement: a name may mean another object each time.

use super::plain::{self, Qualified};
use super::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::{array_of, text_array};

/// The names as parameters of a query.
pub struct NamedThings {
    /// Schemas, and what is named in each. An entry without a name stands for operators.
    pub schemas: String,
    pub names: String,
    /// One column of each table: the names in its text count, if it is generated.
    pub columns: String,
}

impl NamedThings {
    pub fn none() -> NamedThings {
        NamedThings::of(&[])
    }

    pub fn of(named: &[Qualified]) -> NamedThings {
        NamedThings {
            schemas: array_of(named.iter().map(|named| Some(named.schema.as_str()))),
            names: array_of(named.iter().map(|named| named.name.as_deref())),
            columns: text_array(&[]),
        }
    }

    /// Returns the names in the statements of a split. Only the source reads the texts of computed columns; on the
    /// target COPY reads that of a generated shard-by column.
    pub fn by(plan: &Plan, side: Side) -> NamedThings {
        let (maps, columns) = match side {
            Side::Source => (plan.tables.iter().flat_map(|table| &table.maps).collect(), Vec::new()),
            Side::Target => (Vec::new(), plan.tables.iter().map(|table| table.shard_by.clone()).collect()),
        };
        let texts = maps.into_iter().filter_map(|map| map.expression.as_deref());
        let named: Vec<Qualified> = texts.filter_map(plain::qualified).flatten().collect();
        NamedThings { columns: text_array(&columns), ..NamedThings::of(&named) }
    }
}
