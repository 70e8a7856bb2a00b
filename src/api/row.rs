//! The columns of functions that return rows of a type in `sql/rows.sql`: the same columns in the same order.

use super::rows::row;
use pgrx::AnyNumeric;
use pgrx::datum::{Interval, TimestampWithTimeZone};

row!(
    MisplacedRun,
    "misplaced_runs_row",
    run_id: i64,
    action: String,
    keyspace: String,
    shard: String,
    keys: i64,
    state: String,
    table_name: Option<String>,
    moved: Option<i64>,
    deleted: Option<i64>,
    sqlstate: Option<String>,
    message: Option<String>,
    started_by: String,
    started_at: TimestampWithTimeZone,
    changed_at: TimestampWithTimeZone,
);

row!(
    Adopted,
    "adopt_row",
    said_by: String,
    keyspace: Option<String>,
    key: Option<String>,
    routed_to: Option<String>,
    moved_to: Option<String>,
    split_id: Option<i64>,
    version: Option<i64>,
    action: String,
);

row!(
    SplitCheck,
    "split_check_row",
    check_name: String,
    ok: Option<bool>,
    detail: String,
    hint: Option<String>,
    object: Option<String>,
);

row!(
    Topology,
    "topology_row",
    shard_index: i32,
    shard_key: String,
    kind: String,
    status: String,
    host: Option<String>,
    port: Option<i32>,
    database: Option<String>,
    namespace: Option<String>,
    auth_kind: Option<String>,
    credential_alias: Option<String>,
    active: bool,
);

row!(
    Execution,
    "executions_row",
    execution_id: i64,
    shard: String,
    state: String,
    rows: Option<i64>,
    sqlstate: Option<String>,
    message: Option<String>,
    statement: String,
    started_by: String,
    changed_at: TimestampWithTimeZone,
    gid: Option<String>,
);

row!(
    Lookup,
    "lookups_row",
    keyspace: String,
    of: String,
    table_name: Option<String>,
    column_name: Option<String>,
    shard_key: Option<String>,
    state: Option<String>,
    waiting: Option<i64>,
    lag_seconds: Option<f64>,
    waits_for: Option<String>,
);

row!(
    RoutingHistory,
    "routing_history_row",
    version: i64,
    changed_at: TimestampWithTimeZone,
    key: Option<String>,
    from_shard: Option<String>,
    to_shard: Option<String>,
    reason: Option<String>,
    changed_by: String,
    split_id: Option<i64>,
);

row!(
    Top,
    "top_row",
    key: Option<String>,
    shard: String,
    rows: Option<i64>,
    rows_error: Option<i64>,
    bytes: Option<i64>,
    writes: Option<i64>,
    share: Option<f64>,
    routed_to: Option<String>,
    problem: Option<String>,
);

row!(
    SurveyRow,
    "survey_row",
    table_name: Option<String>,
    rows: Option<i64>,
    bytes: Option<i64>,
    tenant_by: Option<String>,
    path: Option<Vec<String>>,
    finding: Option<String>,
    call: Option<String>,
);

row!(
    AdoptionStepRow,
    "adoption_step",
    kind: String,
    table_name: Option<String>,
    column_name: Option<String>,
    through: Option<Vec<String>>,
    value_column: Option<String>,
    also: Option<Vec<String>>,
    policy: Option<String>,
    key_type: Option<String>,
    call: Option<String>,
    undo: Option<String>,
    why: String,
);

row!(
    SplitFigures,
    "split_figures_row",
    split_id: i64,
    lag_rows: Option<i64>,
    lag_seconds: Option<f64>,
    queue_bytes: Option<i64>,
    is_behind: Option<bool>,
    problem: Option<String>,
    queue_limit: Option<i64>,
);

row!(
    Capacity,
    "capacity_row",
    shard_key: String,
    status: String,
    capacity: Option<i64>,
    minted: i64,
    free: i64,
    leased: i64,
    confirmed: i64,
    available: Option<i64>,
    kind: String,
);

row!(
    Entry,
    "entries_row",
    key: Option<String>,
    bucket: Option<i32>,
    lower: Option<String>,
    upper: Option<String>,
    read_shard: String,
    write_shard: String,
    status: String,
    version: i64,
);

row!(
    ReservedSlot,
    "reserve_slot_row",
    reservation_id: i64,
    shard_key: String,
    slot_no: i64,
    status: String,
    lease_expires_at: Option<TimestampWithTimeZone>,
);

row!(
    Login,
    "logins_row",
    role: String,
    shard: Option<String>,
    username: String,
    credential_alias: Option<String>,
    set_by: String,
    updated_at: TimestampWithTimeZone,
);

row!(
    Credential,
    "credentials_row",
    alias: String,
    auth_kind: String,
    shards: Vec<String>,
    master_key: String,
    set_by: String,
    updated_at: TimestampWithTimeZone,
);

row!(
    ReferenceTable,
    "reference_tables_row",
    keyspace: String,
    table_name: String,
    origin: String,
    shard: String,
    state: String,
    lag: Option<Interval>,
    error: Option<String>,
    hint: Option<String>,
);

row!(
    TenantUsage,
    "tenant_usage_row",
    kind: String,
    leased: i64,
    confirmed: i64,
    quota: Option<i64>,
    slot_seconds: AnyNumeric,
    tenant_id: String,
);

row!(
    RouteRange,
    "route_range_row",
    lower: Option<String>,
    upper: Option<String>,
    shard_key: String,
    conninfo: Option<String>,
    routing_version: i64,
    namespace: String,
);
