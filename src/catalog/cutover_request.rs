//! The table `split_cutover`: what an operator has said of the cutover, or the rehearsal of
//! one, that he asks for. The row goes when it is decided, given up or rehearsed. Whoever
//! writes here holds the plan's lock.

use super::split_state::request;
use crate::clean;
use crate::server::sql;
use pgrx::datum::TimestampWithTimeZone;
use std::time::Duration;

/// How a cutover is to be done; `None`: as the settings say, at once.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// How long writers may be kept waiting.
    pub max_fence: Option<Duration>,
    /// The window in which it may begin.
    pub not_before: Option<TimestampWithTimeZone>,
    pub until: Option<TimestampWithTimeZone>,
    /// How often it is tried.
    pub attempts: i32,
}

impl Wishes {
    /// At once, and once.
    pub fn none() -> Wishes {
        Wishes { max_fence: None, not_before: None, until: None, attempts: 1 }
    }
}

/// The next attempt is not made yet, as SQL over a row `p` of `split_plan`.
pub const IS_LATER: &str = "EXISTS (SELECT 1 FROM shardmaster.split_cutover c
                                     WHERE c.split_id = p.id AND greatest(c.not_before, c.next_at) > clock_timestamp()
                                       AND (c.until IS NULL OR c.until > clock_timestamp()))";

/// A rehearsal is asked for, as SQL over a row `p` of `split_plan`.
pub const IS_REHEARSAL: &str =
    "EXISTS (SELECT 1 FROM shardmaster.split_cutover c WHERE c.split_id = p.id AND c.rehearses)";

/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: i32 = 60;

/// Takes the place of what was said before.
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

/// What a cutover that is asked for has met, and is tried again after. Before its window begins it is
/// something else that is tried.
pub fn met(id: i64, why: &str) {
    sql::write(
        "UPDATE shardmaster.split_cutover SET last_error = $2
          WHERE split_id = $1 AND coalesce(not_before <= clock_timestamp(), true)",
        &[id.into(), why.into()],
    );
}

/// What it has met last.
pub fn last_error(id: i64) -> Option<String> {
    let query = "SELECT last_error FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_one(query, &[id.into()], |row| row.get::<String>(1)).flatten()
}

/// What is wrong with a window.
pub fn is_over(wishes: &Wishes) -> bool {
    let query = "SELECT coalesce($1 <= greatest($2, clock_timestamp()), false)";
    sql::read_one(query, &[wishes.until.into(), wishes.not_before.into()], |row| row.value(1))
        .unwrap_or(false)
}

pub fn forget(id: i64) {
    sql::write("DELETE FROM shardmaster.split_cutover WHERE split_id = $1", &[id.into()]);
}

/// The rehearsal is over; false: something else is asked for by now.
pub fn end_rehearsal(id: i64) -> bool {
    sql::write("DELETE FROM shardmaster.split_cutover WHERE split_id = $1 AND rehearses", &[id.into()]) == 1
}

/// How long writers may be kept waiting by the cutover that is asked for.
pub fn max_fence(id: i64) -> Option<Duration> {
    let query =
        "SELECT extract(epoch FROM max_fence)::float8 FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_one(query, &[id.into()], |row| row.get::<f64>(1)).flatten().map(Duration::from_secs_f64)
}

/// Another attempt, if one is left and its window has not ended by then: when, for people.
/// Pauses grow from a second to a minute.
pub fn postpone(id: i64, why: &str) -> Option<String> {
    let query = "
        UPDATE shardmaster.split_cutover
           SET attempt = attempt + 1, last_error = $2,
               next_at = clock_timestamp() + make_interval(secs => least($3, 2 ^ least(attempt, 10)))
         WHERE split_id = $1 AND NOT rehearses AND attempt + 1 < attempts
           AND (until IS NULL OR clock_timestamp() + make_interval(secs => least($3, 2 ^ least(attempt, 10))) < until)
        RETURNING format('attempt %s of %s follows at %s', attempt + 1, attempts, date_trunc('second', next_at))";
    let why = clean::said(why);
    sql::write_returning(query, &[id.into(), why.as_str().into(), LONGEST_PAUSE.into()], |row| row.value(1))
        .into_iter()
        .next()
}

/// For `waiting_for`: what a cutover waits for that is not tried yet.
pub fn waits_for(id: i64) -> Option<String> {
    let query = "
        SELECT CASE WHEN attempt = 0 THEN format('the cutover, not before %s', date_trunc('second', not_before))
                    ELSE format('attempt %s of %s of the cutover, at %s; before: %s', attempt + 1, attempts,
                                date_trunc('second', greatest(next_at, not_before)), last_error) END
          FROM shardmaster.split_cutover WHERE split_id = $1";
    sql::read_one(query, &[id.into()], |row| row.get::<String>(1)).flatten()
}
