//! How a split may end whose tables somebody has changed on the way: right to the row, or
//! with an error that says where. Nothing else.

use crate::cluster::{Cluster, DATABASE};
use crate::split::Split;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// An operator's patience with one call.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what it waits for.
const LOOK: Duration = Duration::from_secs(3);

/// The moving tenant's rows: id and what else they hold, in order, doubled ones twice.
pub type Rows = Vec<(i32, String)>;

#[derive(Debug)]
pub enum SplitOutcome {
    Finished,
    Refused(String),
}

impl SplitOutcome {
    /// The error of an ending that must not have been a silent one.
    pub fn refusal(self) -> String {
        match self {
            SplitOutcome::Refused(text) => text,
            SplitOutcome::Finished => panic!("the split is finished, though it should have been refused"),
        }
    }
}

/// What a server holds of the moving tenant; an error where its table cannot be read so.
pub fn held(cluster: &Cluster, server: usize) -> Result<Rows> {
    let query = "SELECT id::int, concat_ws(' ', val, code) FROM items WHERE tenant = 'moves' ORDER BY 1, 2";
    let rows = cluster.servers[server].superuser(DATABASE)?.query(query, &[])?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// How many rows of the tenant the source has, whatever its columns are by now.
fn count(cluster: &Cluster) -> i64 {
    let query = "SELECT count(*) FROM items WHERE tenant = 'moves'";
    cluster.servers[0].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// Goes on as an operator would, twice where the first time fails, and looks at the end:
/// finished with exactly the expected rows, or an error that names the table, no row
/// deleted on the source, and each expected row on one of the sides.
pub fn ends_well(cluster: &Cluster, split: &Split<'_>, expected: &Rows) -> SplitOutcome {
    let before = count(cluster);
    let Err(error) = carry_on(cluster, split).or_else(|_| carry_on(cluster, split)) else {
        assert_eq!(&held(cluster, 1).unwrap(), expected, "the target of a split that is finished");
        assert_eq!(count(cluster), 0, "rows left on the source of a split that is finished");
        return SplitOutcome::Finished;
    };
    let text = error.to_string();
    assert!(text.contains("items"), "no table is named: {text}");
    assert_eq!(count(cluster), before, "rows of the source after: {text}");
    let sides = [held(cluster, 0).unwrap_or_default(), held(cluster, 1).unwrap_or_default()];
    for row in expected {
        assert!(sides.iter().any(|side| side.contains(row)), "{row:?} is nowhere after: {text}");
    }
    SplitOutcome::Refused(text)
}

/// Until it is there, or waits for tables that nobody makes alike.
fn run(cluster: &Cluster, split: &Split<'_>) -> Result<()> {
    let mut master = cluster.superuser()?;
    master.batch_execute(&format!("SET statement_timeout = '{}s'", LOOK.as_secs()))?;
    let began = Instant::now();
    loop {
        let outcome = master.batch_execute(&format!("CALL shard_split_run({})", split.id));
        let Err(error) = outcome else { return Ok(()) };
        let waits_for = split.metric::<Option<String>>("waiting_for")?.unwrap_or_default();
        let is_busy = error.code().is_some_and(|code| code.code() == "57014") && began.elapsed() < PATIENCE;
        if !is_busy || waits_for.contains("both sides") {
            // Where it is asked again, it may just be trying.
            return Err(Error::from(error).context(&waits_for));
        }
    }
}

/// The calls by which a split goes from where it is to its end.
fn carry_on(cluster: &Cluster, split: &Split<'_>) -> Result<()> {
    if split.phase()? != "completed" {
        // Refused where the split has not stopped; then it goes on anyway.
        let _ = split.call("resume");
        run(cluster, split).map_err(|e| e.context(&split.describe()))?;
    }
    split.finish(PATIENCE)
}
