//! Pages of the rows of all shards.

use super::arguments::{invalid, longest_wait, names_of};
use super::json_text::JsonText;
use crate::error::{Failure, required};
use crate::query::page::{MOST, Order, Page, words};
use crate::query::record::Json;
use crate::query::run::{Query, Statement, require_fit};
use crate::server::sql;
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// SECURITY INVOKER: shards are asked as the caller's login.
#[allow(clippy::too_many_arguments)]
#[pg_extern(volatile, parallel_unsafe)]
pub fn shard_query_page(
    sql: Option<String>,
    order_by: Option<Vec<Option<String>>>,
    page_size: default!(Option<i32>, "50"),
    after: default!(Option<JsonText>, "NULL"),
    keyspace: default!(Option<String>, "'default'"),
    shards: default!(Option<Vec<Option<String>>>, "NULL"),
    timeout: default!(Option<Interval>, "'1 min'"),
) -> Result<SetOfIterator<'static, Json>, ErrorReport> {
    require_fit("shard_query_page")?;
    let (statement, keyspace) = (required(sql, "sql")?, required(keyspace, "keyspace")?);
    let names = names_of(required(order_by, "order_by")?, "order_by")?;
    if names.is_empty() {
        return Err(invalid("order_by", "it names no column").into());
    }
    let order: Vec<Order> = names.iter().map(|name| Order::parse(name)).collect();
    let rows = usize::try_from(required(page_size, "page_size")?).unwrap_or(0);
    if !(1..=MOST).contains(&rows) {
        return Err(invalid("page_size", format!("page_size must be between 1 and {MOST}")).into());
    }
    let after = after.map(|row| values_of(&row, &order)).transpose()?;
    let shards = shards.map(|names| names_of(names, "shards")).transpose()?;
    let words = words(&order, after.as_deref(), rows);
    let query = Query {
        statement: Statement::Given(&statement),
        select: &words.select,
        then: &words.then,
        keyspace: &keyspace,
        first_schema: None,
        shards: shards.as_deref(),
        timeout: longest_wait(timeout)?,
        reports: false,
        whole: false,
    };
    let found = Page { query, order: &order, rows }.run()?;
    Ok(SetOfIterator::new(found.into_iter().map(Json::Text)))
}

/// Returns the values that order the last row of a page. The server parses them, so that numbers lose no digits.
fn values_of(row: &JsonText, order: &[Order]) -> Result<Vec<String>, Failure> {
    let text = String::from_utf8_lossy(&row.0);
    let value = |order: &Order| {
        let query = "SELECT pg_catalog.jsonb_extract_path_text($1::pg_catalog.jsonb, $2)";
        let found = sql::read(query, &[(&*text).into(), order.column.as_str().into()], |row| row.get(1));
        found
            .into_iter()
            .flatten()
            .next()
            .ok_or_else(|| invalid("after", format!("it has no value of column \"{}\"", order.column)))
    };
    order.iter().map(value).collect()
}

extension_sql!(
    r#"COMMENT ON FUNCTION shard_query_page(text, text[], int, jsonb, text, text[], interval) IS
'returns the next rows of all shards in one order, as JSON. order_by: columns of the statement, each with ASC or DESC, a text with COLLATE "C" before it. after: the last row of the page before. Rows with NULL in one of these columns are on no page. page_size: 1 to 10,000 rows; each shard sends at most so many. Example: SELECT * FROM shard_query_page(''SELECT id, name FROM item'', ''{id}''). 22023: the order does not distinguish two rows on two pages; 42804: a column that shards may sort differently; all other errors as of shard_query_json';"#,
    name = "comments_page",
    requires = [shard_query_page]
);
