//! Queries over all shards, by function and by foreign table.

mod attacks;
mod columns;
mod exactly_once;
mod imports;
mod limits;
mod many_shards;
mod pages;
mod pushdown;
mod values;
