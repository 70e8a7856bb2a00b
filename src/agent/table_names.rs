//! Tables by the names with which they are looked up on a shard.

use super::session::Side;
use crate::catalog::split::Plan;
use crate::remote::quote::{qualified, text_array};

/// The schemas and the names of tables, in their order.
#[derive(Clone, Default)]
pub struct TableNames {
    pub schemas: Vec<String>,
    pub names: Vec<String>,
}

impl TableNames {
    /// Returns those of a split's tables on a side.
    pub fn of(plan: &Plan, side: Side) -> TableNames {
        let namespace = &side.shard(plan).namespace;
        let schema = |schema: &Option<String>| schema.clone().unwrap_or_else(|| namespace.clone());
        plan.tables.iter().map(|table| (schema(&table.schema), table.name.clone())).collect()
    }

    pub fn one(schema: &str, name: &str) -> TableNames {
        TableNames { schemas: vec![schema.to_owned()], names: vec![name.to_owned()] }
    }

    /// Returns the lists of a split's tables on a side, with their shard-by columns.
    pub fn keyed_lists(plan: &Plan, side: Side) -> [String; 3] {
        let columns: Vec<String> = plan.tables.iter().map(|table| table.shard_by.clone()).collect();
        TableNames::of(plan, side).lists_with(&columns)
    }

    /// Returns the schemas and the names as arrays, for the parameters of a query.
    pub fn lists(&self) -> [String; 2] {
        [text_array(&self.schemas), text_array(&self.names)]
    }

    /// Returns these, and one column of each table.
    pub fn lists_with(&self, columns: &[String]) -> [String; 3] {
        let [schemas, names] = self.lists();
        [schemas, names, text_array(columns)]
    }

    /// Returns the name of a table, qualified and quoted.
    pub fn qualified(&self, position: usize) -> Option<String> {
        Some(qualified(self.schemas.get(position)?, self.names.get(position)?))
    }
}

impl FromIterator<(String, String)> for TableNames {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(tables: T) -> TableNames {
        let mut all = TableNames::default();
        all.extend(tables);
        all
    }
}

impl Extend<(String, String)> for TableNames {
    fn extend<T: IntoIterator<Item = (String, String)>>(&mut self, tables: T) {
        for (schema, name) in tables {
            self.schemas.push(schema);
            self.names.push(name);
        }
    }
}
