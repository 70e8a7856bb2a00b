//! The settings. All begin with `shardmaster.`; `pg_settings` lists them with units.

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::{CStr, CString};
use std::time::Duration;

type Text = GucSetting<Option<CString>>;
type Int = GucSetting<i32>;

static DATABASE: Text = GucSetting::<Option<CString>>::new(Some(c"postgres"));
static LOCAL_USER: Text = GucSetting::<Option<CString>>::new(None);
static FAULT: Text = GucSetting::<Option<CString>>::new(None);
static MASTER_KEY_FILE: Text = GucSetting::<Option<CString>>::new(None);
static MASTER_KEY_COMMAND: Text = GucSetting::<Option<CString>>::new(None);
static THROTTLE_QUERY: Text = GucSetting::<Option<CString>>::new(None);
static REVERSE: GucSetting<bool> = GucSetting::<bool>::new(true);
static CAPTURE: GucSetting<bool> = GucSetting::<bool>::new(true);
static MAX_SPLIT_WORKERS: Int = Int::new(4);
static MAX_COPY_RATE: Int = Int::new(0);
static MAX_STANDBY_LAG: Int = Int::new(0);
static STEP_TIME: Int = Int::new(1_000);
static COPY_SHARE: Int = Int::new(65);
static COPY_STREAMS: Int = Int::new(0);
static TAIL_INTERVAL: Int = Int::new(200);
static MAX_LAG: Int = Int::new(1_000);
static CUTOVER_TIMEOUT: Int = Int::new(10_000);
static CUTOVER_MAX_ROWS: Int = Int::new(20_000);
static CUTOVER_MAX_SIZE: Int = Int::new(64);
static MAX_ROW_SIZE: Int = Int::new(512);
static ROUTE_WAIT_TIMEOUT: Int = Int::new(10_000);
static REMOTE_TIMEOUT: Int = Int::new(30_000);
static CAPTURE_LEASE: Int = Int::new(86_400);
static QUEUE_MAX_SIZE: Int = Int::new(4_096);
static SEQUENCE_MARGIN: Int = Int::new(1_000);
static WATCH_INTERVAL: Int = Int::new(10_000);
static LEASE_SWEEP_INTERVAL: Int = Int::new(5_000);
static RESERVATION_RETENTION: Int = Int::new(0);
static REDIRECT_RETENTION: Int = Int::new(0);

static ROUTE_CACHE_SIZE: Int = Int::new(200_000);
static MACHINE_ID: Int = Int::new(-1);
static WORKER_ID: Text = GucSetting::<Option<CString>>::new(None);
static SNOWFLAKE_EPOCH: Text = GucSetting::<Option<CString>>::new(Some(c"2024-01-01"));

fn text(setting: &Text) -> Option<String> {
    let value = setting.get()?;
    let value = value.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

fn millis(setting: &Int) -> Duration {
    Duration::from_millis(u64::try_from(setting.get()).unwrap_or(0))
}

/// The database that holds the extension, which the launcher connects to.
pub fn database() -> String {
    text(&DATABASE).unwrap_or_else(|| "postgres".into())
}
/// The role that the mover uses for shards in this same database.
pub fn local_user() -> Option<String> {
    text(&LOCAL_USER)
}
/// Fault points for developers: `point=hold|error|exit|kill`, separated by commas.
pub fn fault() -> Option<String> {
    text(&FAULT)
}
/// Whether changes are captured. It is off only to show that the checks find what capture prevents.
pub fn capture() -> bool {
    CAPTURE.get()
}
pub fn max_split_workers() -> usize {
    usize::try_from(MAX_SPLIT_WORKERS.get()).unwrap_or(0)
}
/// In bytes a second. Returns None if the rate is unlimited.
pub fn max_copy_rate() -> Option<u64> {
    let kilobytes = u64::try_from(MAX_COPY_RATE.get()).unwrap_or(0);
    (kilobytes > 0).then_some(kilobytes * 1024)
}
/// Returns how far the target's standbys may be behind during a copy, or None if there is no limit.
pub fn max_standby_lag() -> Option<Duration> {
    let lag = millis(&MAX_STANDBY_LAG);
    (lag > Duration::ZERO).then_some(lag)
}
pub fn step_time() -> Duration {
    millis(&STEP_TIME)
}
/// The fraction of its time during which a copy reads and writes while clients do.
pub fn copy_share() -> f64 {
    f64::from(COPY_SHARE.get()) / 100.0
}
/// The number of chunks that are copied at the same time; 0 if the shards' cores decide it.
pub fn copy_streams() -> usize {
    usize::try_from(COPY_STREAMS.get()).unwrap_or(0)
}
pub fn tail_interval() -> Duration {
    millis(&TAIL_INTERVAL)
}
pub fn max_lag() -> Duration {
    millis(&MAX_LAG)
}
pub fn cutover_timeout() -> Duration {
    millis(&CUTOVER_TIMEOUT)
}
pub fn cutover_max_rows() -> i64 {
    i64::from(CUTOVER_MAX_ROWS.get())
}
/// The greatest number of bytes of changed rows that a cutover applies.
pub fn cutover_max_bytes() -> u64 {
    u64::try_from(CUTOVER_MAX_SIZE.get()).unwrap_or(0) << 20
}
/// The greatest number of bytes of one moving row in the format of COPY.
pub fn max_row_bytes() -> u64 {
    u64::try_from(MAX_ROW_SIZE.get()).unwrap_or(0) << 20
}
pub fn route_wait_timeout() -> Duration {
    millis(&ROUTE_WAIT_TIMEOUT)
}
pub fn remote_timeout() -> Duration {
    millis(&REMOTE_TIMEOUT)
}
/// The file of the keys that encrypt credentials.
pub fn master_key_file() -> Option<String> {
    text(&MASTER_KEY_FILE)
}
/// The command that prints these keys.
pub fn master_key_command() -> Option<String> {
    text(&MASTER_KEY_COMMAND)
}
/// The operator's query that a copy runs on its target to decide whether to wait.
pub fn throttle_query() -> Option<String> {
    text(&THROTTLE_QUERY)
}

/// Whether a split that starts now gets a reverse split.
pub fn reverse() -> bool {
    REVERSE.get()
}

/// The number of seconds for which capture continues without a sign of life of the worker.
pub fn capture_lease_seconds() -> i32 {
    CAPTURE_LEASE.get()
}
/// The greatest number of bytes of a split's queues.
pub fn queue_max_bytes() -> i64 {
    i64::from(QUEUE_MAX_SIZE.get()) * 1024 * 1024
}
/// Returns how often a completed split's shards are checked, or None if they are not.
pub fn watch_interval() -> Option<Duration> {
    let interval = millis(&WATCH_INTERVAL);
    (interval > Duration::ZERO).then_some(interval)
}
pub fn sequence_margin() -> i64 {
    i64::from(SEQUENCE_MARGIN.get())
}

pub fn lease_sweep_interval() -> Duration {
    millis(&LEASE_SWEEP_INTERVAL)
}
/// Returns None if reservations are kept for ever.
pub fn reservation_retention() -> Option<Duration> {
    let seconds = u64::try_from(RESERVATION_RETENTION.get()).unwrap_or(0);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Returns None if redirects are kept for ever.
pub fn redirect_retention() -> Option<Duration> {
    let seconds = u64::try_from(REDIRECT_RETENTION.get()).unwrap_or(0);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The number of entries of routing that a session keeps.
pub fn route_cache_size() -> usize {
    usize::try_from(ROUTE_CACHE_SIZE.get()).unwrap_or(0)
}
/// Returns None if the number is to be found in another way.
pub fn machine_id() -> Option<u16> {
    u16::try_from(MACHINE_ID.get()).ok()
}
pub fn worker_id() -> Option<String> {
    text(&WORKER_ID)
}
/// The epoch is a date, as text.
pub fn snowflake_epoch() -> String {
    text(&SNOWFLAKE_EPOCH).unwrap_or_default()
}

/// Defines every setting. `_PG_init` calls this once.
pub fn register() {
    register_texts();
    register_times();
    register_limits();
    GucRegistry::define_bool_guc(
        c"shardmaster.capture",
        c"Developer's setting: installs capture triggers.",
        c"Off makes a split lose the writes that happen while it copies. Tests use it to see that losses are found.",
        &CAPTURE,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"shardmaster.reverse",
        c"Allows shard_split_reverse() to take a split back after its cutover.",
        c"Read when a split is started. From the cutover on, its target then queues the keys of changed rows.",
        &REVERSE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    // SAFETY: this is called in _PG_init, and every setting is defined above.
    unsafe { crate::majors::reserve_prefix(c"shardmaster") };
}

/// Returns the context of a setting that only a restart changes. A session that loads the library on its own must not
/// define such a setting: there, it gets the context of the others.
fn fixed_at_start() -> GucContext {
    // SAFETY: this is a plain flag of the server, written before _PG_init is called.
    if unsafe { pgrx::pg_sys::process_shared_preload_libraries_in_progress } {
        GucContext::Postmaster
    } else {
        GucContext::Sighup
    }
}

fn register_texts() {
    let define = |name: &'static CStr, short, long, setting: &'static Text, context| {
        GucRegistry::define_string_guc(name, short, long, setting, context, GucFlags::default());
    };
    define(
        c"shardmaster.database",
        c"Database in which the extension is installed.",
        c"The launcher works in this database.",
        &DATABASE,
        fixed_at_start(),
    );
    define(
        c"shardmaster.worker_id",
        c"Name of this server, from which its machine id is derived.",
        c"Two names may give the same id. Used where shardmaster.machine_id is not set. Empty: the environment's WORKER_ID.",
        &WORKER_ID,
        fixed_at_start(),
    );
    define(
        c"shardmaster.snowflake_epoch",
        c"Date from which identifiers count their milliseconds, at 00:00 UTC.",
        c"Fixed once the first identifier has been made.",
        &SNOWFLAKE_EPOCH,
        fixed_at_start(),
    );
    define(
        c"shardmaster.local_user",
        c"Role of the mover on shards that are the master's own database.",
        c"Empty: the owner of the extension.",
        &LOCAL_USER,
        GucContext::Sighup,
    );
    define(
        c"shardmaster.throttle_query",
        c"Query by which a copy is paused, run on the split's target once a second.",
        c"Its first value is the reason to pause, as text, or true. NULL, false or no row: the copy continues. Empty: no query.",
        &THROTTLE_QUERY,
        GucContext::Sighup,
    );
    let of_superusers = |name: &'static CStr, short, long, setting: &'static Text| {
        GucRegistry::define_string_guc(
            name,
            short,
            long,
            setting,
            GucContext::Sighup,
            GucFlags::SUPERUSER_ONLY,
        );
    };
    of_superusers(
        c"shardmaster.master_key_file",
        c"File with the master keys that credentials are encrypted with.",
        c"Each line has 64 hexadecimal digits. The first key encrypts, all decrypt. Only the server's operating-system user may read the file. Empty: shardmaster.master_key_command.",
        &MASTER_KEY_FILE,
    );
    of_superusers(
        c"shardmaster.master_key_command",
        c"Shell command whose output is the master keys that credentials are encrypted with.",
        c"The output is as in the file. Times out after 5 s. Empty: SHARDMASTER_MASTER_KEY in the environment of the server.",
        &MASTER_KEY_COMMAND,
    );
    define(
        c"shardmaster.fault",
        c"Developer's setting: what happens at injection points of a split.",
        c"'point=hold', 'point=error', 'point=exit' or 'point=kill', separated by commas; see shard_split_points().",
        &FAULT,
        GucContext::Suset,
    );
}

fn register_times() {
    let ms = |name: &'static CStr, short, long, setting: &'static Int, min, context| {
        GucRegistry::define_int_guc(name, short, long, setting, min, i32::MAX, context, GucFlags::UNIT_MS);
    };
    ms(
        c"shardmaster.step_time",
        c"Time that one step of a copy should take.",
        c"The chunk size adapts to it. A step holds one snapshot on the source.",
        &STEP_TIME,
        10,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.tail_interval",
        c"Time between two windows of changes while a split follows its source.",
        c"If a window takes longer, the next follows at once.",
        &TAIL_INTERVAL,
        1,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.max_lag",
        c"Lag below which a split counts as caught up.",
        c"Time to copy the rows of one window, without the network latency to a distant target.",
        &MAX_LAG,
        1,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.cutover_timeout",
        c"Deadline of a cutover, until its decision.",
        c"After that the cutover is undone, and the split goes on following its source.",
        &CUTOVER_TIMEOUT,
        100,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.route_wait_timeout",
        c"Time that a write route waits for a cutover.",
        c"After that it is refused with SM002.",
        &ROUTE_WAIT_TIMEOUT,
        0,
        GucContext::Userset,
    );
    ms(
        c"shardmaster.lease_sweep_interval",
        c"Time between two searches for expired leases.",
        c"The worker wakes earlier if a lease expires earlier.",
        &LEASE_SWEEP_INTERVAL,
        10,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.max_standby_lag",
        c"How far standbys of the target may lag before a copy waits for them.",
        c"Measured on the slowest standby that streams from it. Changes are still applied. 0: no limit.",
        &MAX_STANDBY_LAG,
        0,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.watch_interval",
        c"Interval at which completed splits check that their shards still know them.",
        c"The state is restored on a shard that failed over or was restored. 0: never.",
        &WATCH_INTERVAL,
        0,
        GucContext::Sighup,
    );
    ms(
        c"shardmaster.remote_timeout",
        c"Time after which a silent shard counts as lost.",
        c"Limits connecting and remote statements. A copy is limited by its progress instead. Scans of whole tables have no limit.",
        &REMOTE_TIMEOUT,
        100,
        GucContext::Sighup,
    );
    GucRegistry::define_int_guc(
        c"shardmaster.reservation_retention",
        c"Age at which the worker moves ended reservations to the archive table.",
        c"0: never.",
        &RESERVATION_RETENTION,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"shardmaster.redirect_retention",
        c"Age at which the redirect of a finished split ends.",
        c"After that the old shard accepts writes of clients with a route from before the split. 0: never.",
        &REDIRECT_RETENTION,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"shardmaster.capture_lease",
        c"Time that capture continues without a sign of life of the worker.",
        c"After that the queue stops growing, and the copy starts again.",
        &CAPTURE_LEASE,
        1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
}

fn register_limits() {
    let int = |name: &'static CStr, short, long, setting: &'static Int, min, max, context, flags| {
        GucRegistry::define_int_guc(name, short, long, setting, min, max, context, flags);
    };
    int(
        c"shardmaster.route_cache_size",
        c"Entries of routing that a session keeps in memory.",
        c"An entry takes about 150 bytes. If there are more, the cache is emptied. 0: none.",
        &ROUTE_CACHE_SIZE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::default(),
    );
    int(
        c"shardmaster.machine_id",
        c"Number of this server in the identifiers that it makes.",
        c"Must be different on each server, standbys included. -1: from shardmaster.worker_id.",
        &MACHINE_ID,
        -1,
        1023,
        fixed_at_start(),
        GucFlags::default(),
    );
    int(
        c"shardmaster.max_split_workers",
        c"Splits that work at the same time, besides one that is rolled back or finished.",
        c"The others wait. Limited by max_worker_processes.",
        &MAX_SPLIT_WORKERS,
        1,
        1_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    int(
        c"shardmaster.max_copy_rate",
        c"Rate of a copy, in kB of data per second.",
        c"0: unlimited.",
        &MAX_COPY_RATE,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    int(
        c"shardmaster.copy_share",
        c"Part of its time, in percent, in which a copy works while clients change the moving rows.",
        c"In the rest of the time it pauses for the clients. 100: without a pause.",
        &COPY_SHARE,
        1,
        100,
        GucContext::Sighup,
        GucFlags::default(),
    );
    int(
        c"shardmaster.copy_streams",
        c"Parallel pairs of sessions of a split: for chunks to copy, ranges to compare, and batches to delete.",
        c"0: half of the cores of the smaller shard if the mover can read their number, else 2. With shardmaster.max_copy_rate it is 1.",
        &COPY_STREAMS,
        0,
        16,
        GucContext::Sighup,
        GucFlags::default(),
    );
    int(
        c"shardmaster.cutover_max_rows",
        c"Changed rows above which a cutover aborts.",
        c"They are applied while writers wait.",
        &CUTOVER_MAX_ROWS,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::default(),
    );
    int(
        c"shardmaster.cutover_max_size",
        c"Size of changed rows above which a cutover aborts.",
        c"They are copied while writers wait. The limit is for the rows of one table.",
        &CUTOVER_MAX_SIZE,
        1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    int(
        c"shardmaster.max_row_size",
        c"Size of a row, as COPY writes it, above which a split stops.",
        c"A worker needs twice as much memory while it copies such a row.",
        &MAX_ROW_SIZE,
        1,
        // The server writes no longer values.
        1_024,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    int(
        c"shardmaster.queue_max_size",
        c"Size of a split's change queues at which capture stops and the copy starts again.",
        c"Client writes never fail because of it.",
        &QUEUE_MAX_SIZE,
        1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    int(
        c"shardmaster.sequence_margin",
        c"Number of values by which a moved sequence is set ahead.",
        c"Covers values that sessions of the source have cached.",
        &SEQUENCE_MARGIN,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::default(),
    );
}
