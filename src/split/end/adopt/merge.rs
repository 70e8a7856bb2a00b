//! One decision, as several shards know it.

use crate::agent::decisions::{EARLIER, NOTE};
use crate::catalog::shard_decision::Decision;

/// A decision that this master does not know.
pub struct Lost {
    pub decision: Decision,
    /// The shards that know it.
    pub said_by: Vec<String>,
    /// Whether its target confirms it, or its source still refuses the keys. A source that has only its note of a
    /// split whose target has none cannot know whether the keys were moved on from there: the target must be asked.
    pub is_certain: bool,
}

/// Whether the record is a note, which stays after everything else was removed.
fn is_noted(decision: &Decision) -> bool {
    decision.said_by == NOTE || decision.said_by == EARLIER
}

/// Returns each decision once, in their order.
pub fn merged(said: Vec<(String, Decision)>) -> Vec<Lost> {
    let mut merged: Vec<Lost> = Vec::new();
    for (shard, decision) in said {
        let is_certain = decision.side == "target" || !is_noted(&decision);
        match merged.iter_mut().find(|lost| lost.decision.is_of_same_split(&decision)) {
            None => merged.push(Lost { decision, said_by: vec![shard], is_certain }),
            Some(lost) => {
                lost.said_by.push(shard);
                lost.is_certain |= is_certain;
                lost.decision.learn_keyspace(&decision);
                // A redirect or a side contains what it still refuses, a note what had moved.
                lost.decision.key_count = lost.decision.key_count.max(decision.key_count);
                if lost.decision.keys.is_none()
                    || decision.keys.is_some() && is_noted(&lost.decision) && !is_noted(&decision)
                {
                    lost.decision.keys = decision.keys;
                    lost.decision.said_by = decision.said_by;
                }
            }
        }
    }
    merged.sort_by(|one, other| {
        let key = |lost: &Lost| (lost.decision.version, lost.decision.split_id);
        key(one).cmp(&key(other))
    });
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(side: &str, said_by: &str, split_id: i64, version: i64, keys: Option<&[&str]>) -> Decision {
        Decision {
            side: side.into(),
            said_by: said_by.into(),
            split_id,
            version,
            keys: keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
            ..Decision::default()
        }
    }

    #[test]
    fn what_is_still_refused_says_more_than_a_note() {
        let merged = merged(vec![
            ("b".into(), said("target", "note", 7, 3, Some(&["x", "y"]))),
            ("a".into(), said("source", "redirect", 7, 3, Some(&["x"]))),
            ("a".into(), said("source", "note", 6, 2, None)),
        ]);
        let splits: Vec<i64> = merged.iter().map(|lost| lost.decision.split_id).collect();
        assert_eq!(splits, [6, 7]);
        assert!(!merged[0].is_certain && merged[1].is_certain);
        assert_eq!(merged[1].decision.keys.as_deref(), Some(&["x".to_owned()][..]));
        assert_eq!(merged[1].said_by, ["b", "a"]);
    }
}
