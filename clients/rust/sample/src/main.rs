//! The vectors of bigint, and a router without a master: sample DIRECTORY, where the vectors are.

use shardmaster_client::async_router::AsyncRouter;
use shardmaster_client::router::Router;
use shardmaster_client::{is_moving, shard_for};
use std::num::NonZeroU32;

fn check(line: &str) -> Option<()> {
    let mut fields = line.strip_prefix("[\"bigint\", \"")?.strip_suffix(']')?.splitn(3, ", ");
    let key: i64 = fields.next()?.trim_end_matches('"').parse().ok()?;
    let count: NonZeroU32 = fields.next()?.parse().ok()?;
    assert_eq!(shard_for(key, count).to_string(), fields.next()?, "{line}");
    Some(())
}

/// What tasks of several threads need of a router.
fn can_be_shared<T: Clone + Send + Sync>() {}

fn main() {
    let directory = std::env::args().nth(1).expect("where the vectors are");
    let vectors = std::fs::read_to_string(format!("{directory}/vectors.jsonl")).expect("the vectors");
    let checked = vectors.lines().filter_map(check).count();
    assert!(checked > 500);
    assert!(is_moving("SM002") && !is_moving("55000"));
    let nowhere = format!("host={directory} user=nobody");
    assert!(Router::connect(&nowhere, "default", None).is_err());
    can_be_shared::<AsyncRouter>();
    println!("{checked} vectors");
}
