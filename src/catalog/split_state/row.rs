//! The row of a split, for code that decides the next step.

use super::{Activity, CutoverRequest, CutoverStep, Goal, IS_UNDOABLE, Phase};
use crate::catalog::{auto_finish, cutover_request, redirect, verification};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::server::sql::{self, Row};
use std::time::Duration;

/// The state of a split and what is requested of it; it is read anew before each step.
#[derive(Clone, Debug)]
pub struct SplitState {
    pub phase: Phase,
    pub goal: Goal,
    pub cutover_step: CutoverStep,
    pub activity: Activity,
    /// A pause holds the split back: only the steps that lead to the decision.
    pub paused: bool,
    pub target_lost: bool,
    pub source_lost: bool,
    pub finished: bool,
    /// A part of a finished split's redirect is to end.
    pub redirect_due: bool,
    /// The end is requested, and what the reversal needs is not removed yet.
    pub undoable: bool,
    /// The split is to be finished automatically, and this is due.
    pub settle_due: bool,
    /// The shards of a completed split are to be asked again.
    pub watch_due: bool,
    /// Tables of the split are to be compared.
    pub verifies: bool,
    /// Rows of the split are to be copied again.
    pub repairs: bool,
    pub request: CutoverRequest,
    /// The split is the reverse split of another one.
    pub goes_back: bool,
    pub generation: i64,
    pub version_cutover: Option<i64>,
    /// How long ago the cutover was requested, or its attempt was due.
    pub cutover_age: Option<Duration>,
    /// How much of its window is left. `None` if it has no window.
    pub cutover_left: Option<Duration>,
    /// When the endpoints of its shards were last changed.
    pub endpoints: String,
    pub error: Option<Failure>,
}

impl SplitState {
    pub fn failed(&self) -> bool {
        self.activity == Activity::Failed
    }
}

/// Returns the query for states and the columns in `more`, of the plans `p` that the condition `of` selects.
fn query(more: &str, of: &str) -> String {
    let (redirect_due, verifies) = (redirect::is_due(), verification::IS_WANTED);
    let (rehearses, later, settle_due) =
        (cutover_request::IS_REHEARSAL, cutover_request::IS_LATER, auto_finish::IS_DUE);
    format!(
        "SELECT p.id, p.phase, p.goal, p.cutover_step, p.activity, p.generation, p.target_lost, p.source_lost,
                p.paused AND p.goal <> 'rolled_back' AND p.phase NOT IN ('completed', 'rolled_back') AS paused,
                p.finished_at IS NOT NULL AS finished, p.reverse_of IS NOT NULL AS goes_back,
                p.routing_version_cutover, p.error_code, p.error_message, p.error_detail, p.error_hint,
                extract(epoch FROM clock_timestamp() - coalesce(p.watched_at, p.cutover_at))::float8 AS watched,
                {redirect_due} AS redirect_due, {settle_due} AS settle_due, {verifies} AS verifies,
                {IS_UNDOABLE} AS undoable, {rehearses} AS rehearses, {later} AS later,
                EXISTS (SELECT 1 FROM shardmaster.split_difference d WHERE d.split_id = p.id AND d.to_repair) AS repairs,
                -- An operator's moment may be infinite, from which nothing can be subtracted.
                (extract(epoch FROM clock_timestamp()) - extract(epoch FROM greatest(p.cutover_asked_at, c.not_before, c.next_at)))::float8 AS cutover_age,
                extract(epoch FROM nullif(c.until, 'infinity') - clock_timestamp())::float8 AS cutover_left,
                (SELECT max(s.endpoint_at)::text FROM shardmaster.shard s WHERE s.shard_key IN (p.source_shard, p.target_shard)) AS endpoints{more}
           FROM shardmaster.split_plan p LEFT JOIN shardmaster.split_cutover c ON c.split_id = p.id
          WHERE {of}"
    )
}

fn state_of(row: &Row<'_>) -> Result<SplitState, Failure> {
    let text = |name: &str| row.named::<String>(name);
    let is = |name: &str| row.is(name);
    let error = text("error_message").map(|message| Failure {
        sqlstate: SqlState::parse(text("error_code").as_deref().unwrap_or("XX000")),
        message,
        detail: text("error_detail"),
        hint: text("error_hint"),
    });
    // The time is negative if the clock was set back; the request then counts as new.
    let duration = |name: &str| row.named::<f64>(name).map(|time| Duration::from_secs_f64(time.max(0.0)));
    let finished = is("finished");
    Ok(SplitState {
        phase: Phase::parse(&text("phase").unwrap_or_default())?,
        goal: Goal::parse(&text("goal").unwrap_or_default())?,
        cutover_step: CutoverStep::parse(&text("cutover_step").unwrap_or_default())?,
        activity: Activity::parse(&text("activity").unwrap_or_default())?,
        paused: is("paused"),
        target_lost: is("target_lost"),
        source_lost: is("source_lost"),
        finished,
        redirect_due: is("redirect_due"),
        undoable: is("undoable"),
        settle_due: is("settle_due"),
        watch_due: !finished
            && guc::watch_interval().is_some_and(|interval| {
                row.named::<f64>("watched").is_some_and(|age| age >= interval.as_secs_f64())
            }),
        verifies: is("verifies"),
        repairs: is("repairs"),
        request: match (is("rehearses"), is("later")) {
            (true, _) => CutoverRequest::Rehearsal,
            (false, true) => CutoverRequest::Later,
            (false, false) => CutoverRequest::Now,
        },
        goes_back: is("goes_back"),
        generation: row.named("generation").unwrap_or_default(),
        version_cutover: row.named("routing_version_cutover"),
        cutover_age: duration("cutover_age"),
        cutover_left: duration("cutover_left"),
        endpoints: text("endpoints").unwrap_or_default(),
        error,
    })
}

/// Returns the error for a number that no split has.
pub fn unknown(id: i64) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("split {id} does not exist"))
        .hint("SELECT split_id, phase FROM shard_split_metrics() lists the splits.")
}

/// Reads the state as committed by now.
pub fn read(id: i64) -> Result<SplitState, Failure> {
    sql::read_one_again(&query("", "p.id = $1"), &[id.into()], |row| state_of(&row))
        .unwrap_or_else(|| Err(unknown(id)))
}

/// Takes the plan's row lock and reads its state. Every session that changes a plan does this first.
pub fn lock(id: i64) -> Result<SplitState, Failure> {
    sql::write_one(&query("", "p.id = $1 FOR UPDATE OF p"), &[id.into()], |row| state_of(&row))
        .unwrap_or_else(|| Err(unknown(id)))
}

/// A split that may have work.
pub struct OpenSplit {
    pub id: i64,
    pub state: SplitState,
    /// Changes whenever the split has advanced or something else is requested of it.
    pub progress: String,
    /// How long ago its shards were last asked, in seconds. `None` if they were not asked yet.
    pub watched: Option<f64>,
}

/// Returns splits that may have something left to do, the oldest first. Few rows are read, however many splits have
/// ended.
pub fn open() -> Vec<OpenSplit> {
    let more = ", extract(epoch FROM clock_timestamp() - p.watched_at)::float8 AS asked,
                (SELECT pg_catalog.concat_ws(' ', p.phase, p.goal, p.cutover_step, g.backfill_status, g.tail_status,
                                             g.total_rows_copied, g.last_event_id, p.tail_requests)
                   FROM (SELECT) one LEFT JOIN shardmaster.split_progress g ON g.split_id = p.id) AS progress";
    let is_open = format!(
        "p.phase <> 'rolled_back' AND (p.finished_at IS NULL OR {}) ORDER BY p.id",
        redirect::is_due()
    );
    let rows = sql::read_again(&query(more, &is_open), &[], |row| {
        let state = state_of(&row).ok()?;
        Some(OpenSplit {
            id: row.named("id")?,
            state,
            progress: row.named("progress").unwrap_or_default(),
            watched: row.named("asked"),
        })
    });
    rows.into_iter().flatten().collect()
}
