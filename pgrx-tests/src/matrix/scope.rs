//! The scopes of the matrix's splits.

use crate::Result;
use postgres::Client;

/// The scope of a cell's split. Each of them contains the rows of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitScope {
    Tenant,
    /// The bucket of the tenant.
    Bucket,
    /// A range that is cut out for the tenant.
    Range,
    /// A range that was on the target before, and whose guard is still there.
    ReturningRange,
}

/// Enough buckets for each cell's tenant to have one of its own.
const BUCKETS: i32 = 65_536;

impl SplitScope {
    pub(super) fn keyspace(self) -> &'static str {
        match self {
            SplitScope::Tenant => "default",
            SplitScope::Bucket => "buckets",
            SplitScope::Range | SplitScope::ReturningRange => "ranges",
        }
    }

    /// Makes the keyspace.
    pub(super) fn set_up(self, client: &mut Client) -> Result<()> {
        match self {
            SplitScope::Tenant => {}
            SplitScope::Bucket => {
                let query = "SELECT shard_keyspace_add('buckets', 'hash', $1, shards => '{shard_a}')";
                client.execute(query, &[&BUCKETS])?;
            }
            SplitScope::Range | SplitScope::ReturningRange => client.batch_execute(
                "SELECT shard_keyspace_add('ranges', 'range');
                 SELECT shard_assign_range(NULL, NULL, 'shard_a', 'ranges')",
            )?,
        }
        Ok(())
    }

    /// Plans a split from one shard to the other.
    pub(super) fn plan(
        self,
        client: &mut Client,
        tenant: &str,
        (source, target): (&str, &str),
    ) -> Result<i64> {
        let (query, count) = match self {
            SplitScope::Tenant => {
                ("SELECT shard_split_plan($1, $2, ARRAY[$3::text]) WHERE $4::int IS NULL", None)
            }
            SplitScope::Bucket => (
                "SELECT shard_split_plan($1, $2, ARRAY[shard_for($3::text, $4)::text], keyspace => 'buckets')",
                Some(BUCKETS),
            ),
            // A blank sorts before everything that follows it in the name of another tenant.
            SplitScope::Range | SplitScope::ReturningRange => (
                "SELECT shard_split_plan_range($1, $2, $3, $3::text || ' ', keyspace => 'ranges') WHERE $4::int IS NULL",
                None,
            ),
        };
        Ok(client.query_one(query, &[&source, &target, &tenant, &count])?.get(0))
    }

    /// Whether splits of this scope pass the point in a way of their own.
    pub(super) fn has(self, point: &str) -> bool {
        self != SplitScope::ReturningRange || point.starts_with("cutover_")
    }
}
