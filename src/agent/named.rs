//! What texts name that a shard's server reads anew in each statement: what a name means may be
//! another thing each time.

use super::plain::{self, Qualified};
use super::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::{array_of, text_array};

/// As parameters.
pub struct NamedThings {
    /// Schemas, and what is named in each; none: operators.
    pub schemas: String,
    pub names: String,
    /// A column of each table: what its text names, if it is generated.
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

    /// In the statements of a split. The source alone reads the texts of computed columns; on
    /// the target COPY reads that of a shard-by column which is generated.
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
