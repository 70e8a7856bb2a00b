//! Objects that are left on a shard when every split is over. These are redirects that shard_guards() lists.
//! After shard_split_redirect_drop only the shard's master and its last decision remain.

use super::stage::WalkCluster;
use crate::Result;

/// Returns all objects of the agent on a shard, in words.
pub fn found(stage: &WalkCluster, shard: usize) -> Result<Vec<String>> {
    let mut owner = stage.cluster.owner_of(&stage.cluster.shards[shard])?;
    let query = "SELECT 'trigger ' || tgname || ' on ' || tgrelid::regclass FROM pg_trigger
                  WHERE NOT tgisinternal AND tgname ~ 'shardmaster'
                 UNION ALL
                 SELECT 'relation ' || relname FROM pg_class WHERE relnamespace = to_regnamespace('shardmaster_agent')
                    AND relkind IN ('r', 'S', 'p', 'v') AND relname NOT IN ('master', 'decision')
                 UNION ALL
                 SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = to_regnamespace('shardmaster_agent')
                 ORDER BY 1";
    Ok(owner.query(query, &[])?.iter().map(|row| row.get(0)).collect())
}

/// Returns the objects that an unfinished split has left. A redirect is not one of them.
pub fn of_splits(found: &[String]) -> Vec<&String> {
    let of_redirect = |line: &&String| {
        let kept = ["redirect", "left_", "may_have_left_", "redirected_", "master", "side", "generation"];
        let shared =
            ["made", "session", "progress", "consumed", "lease", "overflow", "is_mover", "shard_for"];
        let shared = shared.iter().chain(&["key_list", "key_guard", "lookup", "reference_"]);
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        kept.iter().chain(shared).any(|known| name.contains(known)) || is_hash_helper(name)
    };
    found.iter().filter(|line| !of_redirect(line)).collect()
}

/// Whether an object's name contains the number of one of these splits.
pub fn is_of(line: &str, splits: &[i64]) -> bool {
    let numbers = line.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    numbers.and_then(|digits| digits.parse().ok()).is_none_or(|id| splits.contains(&id))
}

fn is_hash_helper(name: &str) -> bool {
    ["multiply", "highest", "rotate", "round", "modulo", "bucket_of", "word_at", "half_at"].contains(&name)
}
