//! How far targets are behind their sources, asked of the sources themselves: what a worker last recorded is outdated
//! while it is paused, has failed or is away. It only reads the catalog, so it also works on a standby.

use crate::agent::session;
use crate::agent::state::queue;
use crate::catalog::shard;
use crate::catalog::split_state::RESTS;
use crate::error::Failure;
use crate::guc;
use crate::remote::ask::{self, Ask, ShardAnswer};
use crate::remote::number;
use crate::server::sql;
use crate::split::phases;
use std::time::Duration;

/// The limit for connecting and answering together; all shards are asked at the same time.
const WITHIN: Duration = Duration::from_secs(1);
/// The number of rows of a queue beyond which an exact number is not needed.
const MOST_ROWS: i64 = 1_000_001;
/// A century.
const LONGEST_LAG: Duration = Duration::from_secs(36_500 * 86_400);

/// The figures of one split, now.
pub struct Figures {
    /// The number of changes that are not on the target yet; `MOST_ROWS` or more count as `MOST_ROWS`.
    pub lag_rows: i64,
    /// The age of the oldest of them.
    pub lag: Duration,
    pub queue_bytes: i64,
    /// The size that the queue may reach: then writers leave marks instead of entries. `None` if unknown.
    pub queue_limit: Option<i64>,
    /// Writers leave marks instead of entries: what they change is in none of these figures.
    pub is_stopped: bool,
}

impl Figures {
    pub fn is_behind(&self) -> bool {
        self.is_stopped || self.lag >= guc::max_lag()
    }

    /// Returns a problem that people must know of, if there is one.
    pub fn problem(&self) -> Option<String> {
        self.is_stopped.then(|| {
            "the queue accepts no more changes, past shardmaster.queue_max_size or shardmaster.capture_lease: the copy will start again".to_owned()
        })
    }
}

/// The figures of a split, or why they are unknown.
pub type KnownFigures = Result<Figures, String>;

/// A split whose source queues changes.
struct FollowedSplit {
    id: i64,
    source: String,
    ordinals: Vec<i32>,
}

/// Returns the figures of one split, or of all that follow their source, including reverse splits, whose queue grows
/// meanwhile.
pub fn now(split: Option<i64>) -> Result<Vec<(i64, KnownFigures)>, Failure> {
    let splits = followed(split);
    let mut asks: Vec<Ask> = Vec::new();
    for split in &splits {
        if asks.last().is_none_or(|ask| ask.shard != split.source) {
            let params = session::parameters(&shard::by_key(&split.source)?, "figures");
            asks.push(Ask { shard: split.source.clone(), params, questions: Vec::new() });
        }
        if let Some(ask) = asks.last_mut() {
            ask.questions.push(queue::behind(split.id, &split.ordinals, MOST_ROWS, WITHIN));
        }
    }
    let answers = ask::all(asks, WITHIN).into_iter().flatten();
    Ok(splits.iter().zip(answers).map(|(split, answer)| (split.id, read(split, answer))).collect())
}

/// Returns the splits in the order of their sources, so that each is asked in one session.
fn followed(split: Option<i64>) -> Vec<FollowedSplit> {
    sql::read(
        &format!(
            "SELECT p.id, p.source_shard, array_agg(t.ordinal)
               FROM shardmaster.split_plan p JOIN shardmaster.split_table t ON t.split_id = p.id
              WHERE ($1 IS NULL OR p.id = $1) AND p.goal <> 'rolled_back' AND (p.phase IN ({}) OR {RESTS})
              GROUP BY p.id ORDER BY p.source_shard, p.id",
            phases::capturing()
        ),
        &[split.into()],
        |row| FollowedSplit { id: row.value(1), source: row.value(2), ordinals: row.value(3) },
    )
}

fn read(split: &FollowedSplit, answer: ShardAnswer) -> KnownFigures {
    let rows = answer.map_err(|error| error.to_string())?;
    let cells: Vec<Option<&str>> = rows.rows.iter().flatten().map(Option::as_deref).collect();
    let [Some(lag_rows), seconds, Some(queue_bytes), is_stopped, queue_limit] = cells.as_slice() else {
        return Err(format!("shard \"{}\" does not know split {}", split.source, split.id));
    };
    let count =
        |what, cell| number::count(&split.source, what, Some(cell)).map_err(|error| error.to_string());
    let lag_rows = count("the number of changes in a queue", lag_rows)?.min(MOST_ROWS);
    let queue_bytes = count("the size of a queue", queue_bytes)?;
    let queue_limit = queue_limit.map(|cell| count("the size that a queue may have", cell)).transpose()?;
    // A clock that was set back makes it negative; one shard's bad answer must not fail the call.
    let seconds: f64 = seconds.and_then(|cell| cell.parse().ok()).unwrap_or(0.0);
    let lag = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO).min(LONGEST_LAG);
    let is_stopped = *is_stopped == Some("t");
    Ok(Figures { lag_rows, lag, queue_bytes, queue_limit, is_stopped })
}
