//! The table `split_cutover`: what an operator has asked of a cutover, or of its rehearsal. The row is deleted when
//! the cutover is decided or aborted, or the rehearsal is over. A session that writes here holds the plan's lock.

use super::split_state::request;
use crate::clean;
use crate::server::sql;
use pgrx::datum::TimestampWithTimeZone;
use std::time::Duration;

/// How a cutover is to be done. A field that is `None` means: as the settings say, or at once.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// How long writers may be kept waiting.
    pub max_fence: Option<Duration>,
    /// The window in which the cutover may begin.
    pub not_before: Option<TimestampWithTimeZone>,
    pub until: Option<TimestampWithTimeZone>,
    /// How many attempts are made.
    pub attempts: i32,
}

impl Wishes {
    /// Returns wishes for one attempt, at once.
    pub fn none() -> Wishes {
        Wishes { max_fence: None, not_before: None, until: None, attempts: 1 }
    }
}

/// SQL over a row `p` of `split_plan`: true if the next attempt is not due yet.
pub const IS_LATER: &str = "EXISTS (SELECT 1 FROM shardmaster.split_cutover c
                                     WHERE c.split_id = p.id AND greatest(c.not_before, c.next_at) > clock_timestamp()
                                       AND (c.until IS NULL OR c.until > clock_timestamp()))";

/// SQL over a row `p` of `split_plan`: true if a rehearsal is asked for.
pub const IS_REHEARSAL: &str =
    "EXISTS (SELECT 1 FROM shardmaster.split_cutover c WHERE c.split_id = p.id AND c.rehearses)";

/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: i32 = 60;

/// Stores a request. It replaces an earlier one of the same split.
pub fn ask(id: i64, wishes: &Wishes, rehearses: bool) {
    sql::write(
        "INSERT INTO shardmaster.split_cutover AS c (split_id, max_fence, not_before, until, attempts, rehearses)
         VALUES ($1, make_interval(secs => $2), $3, $4, $5, $6)
         ON CONFLICT (split_id) DO UPDATE
            SET max_fence = EXCLUDED.max_fence, not_before = EXCLUDED.not_before,
                until = EXCLUDED.until, attempts = EXCLUDED.attempts, attempt = 0, next_at = NULL,
                last_error = NULL, rehearses = EXCLUDED.rehearses",
        &[
            id.into(),
            wishes.max_fence.map(|limit| limit.as_secs_f64()).into(),
            wishes.not_before.into(),
            wishes.until.into(),
            wishes.attempts.into(),
            rehearses.into(),
        ],
    );
    request::asked_for_cutover(id);
}

/// Records the error after which a requested cutover is tried again. Before the window of the cutover begins, an error
/// belongs to something else and is not recorded.
pub fn met(id: i64, why: &str) {
    sql::write(
        "UPDATE shardmaster.split_cutover SET last_error = $2
          WHERE split_id = $1 AND coalesce(not_before <= clock_timestamp(), true)",
        &[id.into(), why.into()],
    );
}

/// Returns the last recorded error of the requested cutover.
pub fn last_error(id: i64) -> Option<String> {
    let query = "SELECT last_error FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_optional::<String>(query, &[id.into()])
}

/// Whether the window has ended, or ends before it begins.
pub fn is_over(wishes: &Wishes) -> bool {
    let query = "SELECT coalesce($1 <= greatest($2, clock_timestamp()), false)";
    sql::read_one(query, &[wishes.until.into(), wishes.not_before.into()], |row| row.value(1))
        .unwrap_or(false)
}

pub fn forget(id: i64) {
    sql::write("DELETE FROM shardmaster.split_cutover WHERE split_id = $1", &[id.into()]);
}

/// Ends the rehearsal. Returns false if something else is asked for by now.
pub fn end_rehearsal(id: i64) -> bool {
    sql::write("DELETE FROM shardmaster.split_cutover WHERE split_id = $1 AND rehearses", &[id.into()]) == 1
}

/// Returns how long the requested cutover may keep writers waiting.
pub fn max_fence(id: i64) -> Option<Duration> {
    let query =
        "SELECT extract(epoch FROM max_fence)::float8 FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_optional::<f64>(query, &[id.into()]).map(Duration::from_secs_f64)
}

/// Schedules another attempt, if one is left and its window has not ended by then. Returns the time of the attempt as
/// text for people. Pauses grow from a second to a minute.
pub fn postpone(id: i64, why: &str) -> Option<String> {
    let query = "
        UPDATE shardmaster.split_cutover
           SET attempt = attempt + 1, last_error = $2,
               next_at = clock_timestamp() + make_interval(secs => least($3, 2 ^ least(attempt, 10)))
         WHERE split_id = $1 AND NOT rehearses AND attempt + 1 < attempts
           AND (until IS NULL OR clock_timestamp() + make_interval(secs => least($3, 2 ^ least(attempt, 10))) < until)
        RETURNING format('attempt %s of %s follows at %s', attempt + 1, attempts, date_trunc('second', next_at))";
    let why = clean::printable(why);
    sql::write_one(query, &[id.into(), why.as_str().into(), LONGEST_PAUSE.into()], |row| row.value(1))
}

/// Returns the text of `waiting_for` for a cutover that is not tried yet.
pub fn waits_for(id: i64) -> Option<String> {
    let query = "
        SELECT CASE WHEN attempt = 0 THEN format('the cutover, not before %s', date_trunc('second', not_before))
                    ELSE format('attempt %s of %s of the cutover, at %s; before: %s', attempt + 1, attempts,
                                date_trunc('second', greatest(next_at, not_before)), last_error) END
          FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_optional::<String>(query, &[id.into()])
}
