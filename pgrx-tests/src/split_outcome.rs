//! The possible outcomes of a split whose tables were changed by somebody during it. It either moves the rows
//! exactly, or fails with an error that names the table.

use crate::cluster::{Cluster, DATABASE};
use crate::split::Split;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// How long an operator waits for one call.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval between two checks of what the split waits for.
const LOOK: Duration = Duration::from_secs(3);

/// The moving tenant's rows: the id and the other values, sorted. A duplicate row occurs twice.
pub type Rows = Vec<(i32, String)>;

#[derive(Debug)]
pub enum SplitOutcome {
    Finished,
    Refused(String),
}

impl SplitOutcome {
    /// Returns the error of a split that must not finish.
    pub fn refusal(self) -> String {
        match self {
            SplitOutcome::Refused(text) => text,
            SplitOutcome::Finished => panic!("the split is finished, though it should have been refused"),
        }
    }
}

/// Returns the moving tenant's rows on a server, or an error if its table cannot be read like this.
pub fn held(cluster: &Cluster, server: usize) -> Result<Rows> {
    let query = "SELECT id::int, concat_ws(' ', val, code) FROM items WHERE tenant = 'moves' ORDER BY 1, 2";
    let rows = cluster.servers[server].superuser(DATABASE)?.query(query, &[])?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Counts the tenant's rows on the source, whatever columns its table has by now.
fn count(cluster: &Cluster) -> i64 {
    let query = "SELECT count(*) FROM items WHERE tenant = 'moves'";
    cluster.servers[0].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// Continues as an operator would, with a second attempt if the first one fails, and checks the end. Either
/// the split has finished with exactly the expected rows; or the error names the table, no row was deleted on
/// the source, and each expected row is on one of the sides.
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

/// Runs the split until it is done, or waits for tables that differ and that nobody changes.
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
            // The error alone may only say that the split is retrying, so what it waits for is added.
            return Err(Error::from(error).context(&waits_for));
        }
    }
}

/// Makes the calls that bring a split from its current phase to its end.
fn carry_on(cluster: &Cluster, split: &Split<'_>) -> Result<()> {
    if split.phase()? != "completed" {
        // The call is refused if the split has not stopped. Then the split continues by itself.
        let _ = split.call("resume");
        run(cluster, split).map_err(|e| e.context(&split.describe()))?;
    }
    split.finish(PATIENCE)
}
