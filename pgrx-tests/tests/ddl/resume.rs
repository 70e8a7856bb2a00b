//! Tables change while their rows move, and splits continue where they were. Copied rows remain, and all
//! their columns are correct. A change that makes copied rows wrong is detected, and they are copied again.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::env::{at_most, is_long_run};
use shardmaster_tests::fixture::{LIMIT, by_owner, cluster_of, load, plan, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use shardmaster_tests::workload::{Sharding, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const TABLE: &str = "CREATE TABLE items (tenant text, id int, val varchar(40), code int, amount numeric(8,2),
                                         at timestamp(3), flat varchar(9), PRIMARY KEY (tenant, id))";

/// Returns the moving tenant's rows with all their columns.
fn rows(cluster: &Cluster, server: usize) -> Vec<String> {
    let query = "SELECT to_jsonb(t)::text FROM items t WHERE tenant = 'moves' ORDER BY id";
    let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(query, &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Rows, each with the transaction that has written it.
type Writers = Vec<(i32, String)>;

/// Returns rows on the target that no client changes meanwhile.
fn written_by(cluster: &Cluster) -> Writers {
    let query = "SELECT id, xmin::text FROM items WHERE tenant = 'moves' AND id % 7 = 0 ORDER BY id";
    let rows = cluster.servers[1].superuser(DATABASE).unwrap().query(query, &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Returns the split's events about tables that changed.
fn told(cluster: &Cluster, split: &Split<'_>) -> Vec<String> {
    let query =
        "SELECT detail FROM shard_split_events($1) WHERE detail LIKE '%both sides are alike%' ORDER BY at";
    let rows = cluster.superuser().unwrap().query(query, &[&split.id]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Changes a row on the source once both sides have changed, and waits until all rows are equal.
fn arrives(cluster: &Cluster, split: &Split<'_>, what: &str) {
    by_owner(cluster, 0, "UPDATE items SET code = code + 1 WHERE tenant = 'moves' AND id = 2");
    let alike = wait::until("the rows to be alike", LIMIT, || {
        Ok((rows(cluster, 0) == rows(cluster, 1)).then_some(()))
    });
    alike
        .map_err(|e| format!("{what}: {e}; {}; {}", split.describe(), split.events().unwrap_or_default()))
        .unwrap();
}

/// Cuts over. A cutover that meets the change before an ordinary step does may be aborted.
fn cuts_over(split: &Split<'_>) {
    wait::until("the cutover", LIMIT, || {
        let _ = split.call("cutover");
        Ok(split.wait("completed", Duration::from_secs(3)).ok())
    })
    .map_err(|e| format!("{e}; {}; {}", split.describe(), split.events().unwrap_or_default()))
    .unwrap();
}

/// Checks that both sides have the same rows after the cutover, and finishes, so that the source has none.
fn ends(cluster: &Cluster, split: &Split<'_>) {
    assert_eq!(rows(cluster, 0), rows(cluster, 1));
    split.finish(LIMIT).unwrap();
    assert!(rows(cluster, 0).is_empty());
}

/// A change, and the statements of the source's clients once the first side has it.
struct Case {
    first: usize,
    /// The change of the first side, and that of the other one. If it is empty, that side does not change.
    change: [&'static str; 2],
    meanwhile: &'static str,
    /// The split's last event about it, or empty if there is none.
    says: &'static str,
    /// Whether the event is already reported for the first side alone.
    alone: bool,
}

/// Makes a case with the same change on both sides.
const fn both(first: usize, change: &'static str, meanwhile: &'static str, says: &'static str) -> Case {
    Case { first, change: [change, change], meanwhile, says, alone: false }
}

impl Case {
    /// Marks a case in which the split can continue after the first side has changed.
    const fn alone(self) -> Case {
        Case { alone: true, ..self }
    }
}

/// Each change meets a split that has copied everything. Afterwards its copies are still there, or were replaced.
fn are_told_apart(cases: &[Case], goes_on: bool) {
    let cluster = cluster_of(&[], TABLE);
    by_owner(
        &cluster,
        0,
        "UPDATE items SET amount = id / 8.0, at = '2020-01-01 10:00:00.125', flat = 'f' || id",
    );
    let split = plan(&cluster);
    to_pending(&split);
    for case in cases {
        let what = case.change.join(" / ");
        let (before, told_before) = (written_by(&cluster), told(&cluster, &split).len());
        by_owner(&cluster, case.first, case.change[0]);
        if case.alone {
            let heard = || Ok((told(&cluster, &split).len() > told_before).then_some(()));
            wait::until(&format!("{what}: the first side to be taken in"), LIMIT, heard).unwrap();
        }
        if case.first == 0 {
            by_owner(&cluster, 0, case.meanwhile);
        }
        by_owner(&cluster, 1 - case.first, case.change[1]);
        if case.first == 1 {
            by_owner(&cluster, 0, case.meanwhile);
        }
        arrives(&cluster, &split, &what);
        let (after, told) = (written_by(&cluster), told(&cluster, &split).split_off(told_before));
        let said = told.last().cloned().unwrap_or_default();
        assert_eq!(said.is_empty(), case.says.is_empty(), "{what}: {told:?}");
        assert!(said.contains(case.says), "{what}: {told:?}");
        if goes_on {
            assert_eq!(before, after, "{what}: {told:?}");
            assert!(!told.join(" ").contains("copied again"), "{what}: {told:?}");
        } else {
            let stayed = before.iter().filter(|row| after.contains(row)).count();
            assert_eq!(stayed, 0, "{what}: {told:?}");
            assert!(said.contains("both sides are alike: these are copied again: "), "{what}: {told:?}");
        }
    }
    cuts_over(&split);
    ends(&cluster, &split);
}

#[test]
#[ignore = "make test-all: each such change; make test has ddl::schema_change::once_both_sides_are_alike_the_split_goes_on"]
fn what_leaves_copied_rows_right_copies_nothing_again() {
    are_told_apart(
        &[
            both(
                0,
                "ALTER TABLE items ADD COLUMN more text",
                "UPDATE items SET more = 'm' || id WHERE id % 3 = 0 AND id % 7 <> 0",
                "public.items (column \"more\" was added)",
            ),
            // The target changes first, and has the column alone meanwhile.
            both(
                1,
                "ALTER TABLE items ADD COLUMN late jsonb",
                "UPDATE items SET late = '{\"a\": 1}' WHERE id % 5 = 0 AND id % 7 <> 0",
                "column \"late\" was added on the source",
            ).alone(),
            both(
                1,
                "ALTER TABLE items RENAME COLUMN more TO most",
                "UPDATE items SET most = 'most' WHERE id = 12",
                "column \"more\" is now \"most\")",
            ),
            both(
                0,
                "ALTER TABLE items ALTER COLUMN val TYPE varchar(80)",
                "UPDATE items SET val = repeat('l', 70) WHERE id = 12",
                "column \"val\" was character varying(40) and is character varying(80))",
            ),
            both(
                1,
                "ALTER TABLE items ALTER COLUMN val TYPE text",
                "UPDATE items SET val = repeat('l', 90) WHERE id = 16",
                "column \"val\" was character varying(80) and is text on the source",
            ).alone(),
            both(
                0,
                "ALTER TABLE items ALTER COLUMN amount TYPE numeric(12,2), ALTER COLUMN at TYPE timestamp",
                "UPDATE items SET amount = 1234567890.12, at = '2021-01-01 10:00:00.123456' WHERE id = 16",
                "column \"amount\" was numeric(8,2) and is numeric(12,2)",
            ),
            both(
                0,
                "ALTER TABLE items ALTER COLUMN code SET NOT NULL",
                "UPDATE items SET code = 9 WHERE id = 18",
                "column \"code\" is NOT NULL",
            ),
            both(
                1,
                "ALTER TABLE items ALTER COLUMN code DROP NOT NULL",
                "UPDATE items SET code = NULL WHERE id = 18",
                "column \"code\" is not NOT NULL",
            ),
            // The source changes first. Until the target follows, the column belongs to the target alone.
            both(
                0,
                "ALTER TABLE items DROP COLUMN flat",
                "UPDATE items SET val = 'without' WHERE id = 8",
                "column \"flat\" was dropped on the target",
            ).alone(),
            // A column that is created again with the same name is a new one.
            both(
                0,
                "BEGIN; ALTER TABLE items DROP COLUMN most; ALTER TABLE items ADD COLUMN most text; COMMIT",
                "UPDATE items SET most = 'new' WHERE id = 8",
                "column \"most\" was added, column \"most\" was dropped",
            ),
            // Two columns exchange their names.
            both(
                1,
                "BEGIN; ALTER TABLE items RENAME COLUMN val TO other; ALTER TABLE items RENAME COLUMN most TO val;
                 ALTER TABLE items RENAME COLUMN other TO most; COMMIT",
                "",
                "column \"val\" is now \"most\", column \"most\" is now \"val\"",
            ),
            // Properties that do not affect a column's values are no difference.
            both(
                0,
                "ALTER TABLE items ALTER COLUMN most SET DEFAULT 'd', ALTER COLUMN most SET STATISTICS 50,
                        ALTER COLUMN most SET STORAGE EXTERNAL, ADD CONSTRAINT small CHECK (id < 1000000);
                 CREATE INDEX items_code ON items (code); COMMENT ON COLUMN items.code IS 'said';
                 GRANT SELECT ON items TO PUBLIC; ALTER TABLE items SET (fillfactor = 90)",
                "INSERT INTO items (tenant, id) VALUES ('moves', 9001)",
                "",
            ),
        ],
        true,
    );
}

#[test]
fn what_makes_copied_rows_wrong_copies_them_again() {
    let one =
        |first, change: [&'static str; 2], says| Case { first, change, meanwhile: "", says, alone: false };
    let cases = [
            both(
                0,
                "ALTER TABLE items ADD COLUMN more int DEFAULT 7",
                "UPDATE items SET more = id WHERE id < 50",
                "earlier rows have a default in column \"more\"",
            ),
            // Each side has given existing rows a different value.
            one(
                0,
                ["ALTER TABLE items ADD COLUMN here int", "ALTER TABLE items ADD COLUMN here int DEFAULT 7"],
                "earlier rows have a default in column \"here\"",
            ),
            // The column belongs to the target alone until the source has it as well.
            one(
                1,
                [
                    "BEGIN; ALTER TABLE items ADD COLUMN own int DEFAULT 5; ALTER TABLE items ALTER COLUMN own DROP DEFAULT; COMMIT",
                    "ALTER TABLE items ADD COLUMN own int",
                ],
                "rows on the target have values in column \"own\"",
            )
            .alone(),
            // The columns have the same names, and their values are exchanged on the source alone.
            one(
                0,
                [
                    "BEGIN; ALTER TABLE items RENAME COLUMN val TO other; ALTER TABLE items RENAME COLUMN flat TO val;
                     ALTER TABLE items ALTER COLUMN val TYPE varchar(40); ALTER TABLE items ALTER COLUMN other TYPE text;
                     ALTER TABLE items RENAME COLUMN other TO flat; COMMIT",
                    "ALTER TABLE items ALTER COLUMN flat TYPE text",
                ],
                "was filled by another one",
            ),
            one(
                0,
                ["ALTER TABLE items DROP COLUMN at; ALTER TABLE items ADD COLUMN at timestamp(3)", ""],
                "column \"at\" was filled by another one",
            ),
            one(
                1,
                ["ALTER TABLE items DROP COLUMN flat; ALTER TABLE items ADD COLUMN flat text", ""],
                "column \"flat\" is different on the target",
            ),
            // The types alone would make this change harmless.
            one(
                1,
                [
                    "ALTER TABLE items ALTER COLUMN val TYPE text USING val || 'x'",
                    "ALTER TABLE items ALTER COLUMN val TYPE text",
                ],
                "on the target it was rewritten",
            ),
            both(
                0,
                "ALTER TABLE items ALTER COLUMN code TYPE bigint",
                "UPDATE items SET code = 5000000000 WHERE id = 14",
                "it was rewritten",
            ),
            both(
                1,
                "ALTER TABLE items ADD COLUMN twice text GENERATED ALWAYS AS (val || val) STORED",
                "UPDATE items SET val = 'g' WHERE id = 18",
                "it was rewritten",
            ),
    ];
    are_told_apart(&cases[..at_most(4).min(cases.len())], false);
}

/// Its key does not lead with the tenant, so the copy goes by blocks, and takes several chunks.
const WIDE: &str = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant))";

/// Clients that change rows of the source until the end, except for rows whose writers are compared.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Clients {
    fn start(cluster: &Cluster, statement: &'static str) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |n: i32| {
            let (stop, mut session) = (stop.clone(), cluster.servers[0].connect(DATABASE, CLIENT).unwrap());
            std::thread::spawn(move || {
                let (mut done, mut id) = (0, n);
                while !stop.load(Ordering::Relaxed) {
                    id = (id + 7919) % 7_000;
                    let row = if id % 7 == 0 { id + 1 } else { id };
                    // This is refused before the column exists, and after the fence.
                    done += session.execute(statement, &[&row]).unwrap_or(0);
                    std::thread::sleep(Duration::from_millis(3));
                }
                done
            })
        };
        let threads = vec![client(2), client(4_001)];
        Clients { stop, threads }
    }

    /// Stops the clients, and returns the number of their changes.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

/// Both sides get a column while the split is held at a point, and clients write to it.
fn changed_at(point: &str, column: &str) -> (Writers, Writers, Vec<String>) {
    let cluster = cluster_of(&["shardmaster.step_time = 20", "shardmaster.cutover_timeout = '20s'"], WIDE);
    let more =
        "INSERT INTO items SELECT CASE i % 2 WHEN 0 THEN 'moves' ELSE 'stays' END, i, repeat('x', 1900), i
                  FROM generate_series(1001, 7000) i; ANALYZE items";
    by_owner(&cluster, 0, more);
    let split = plan(&cluster);
    let before_cutover = !point.starts_with("cutover");
    if before_cutover {
        cluster.hold(point).unwrap();
        split.call("start_dual_write").unwrap();
        split.call("run_backfill").unwrap();
    } else {
        to_pending(&split);
        cluster.hold(point).unwrap();
        split.call("cutover").unwrap();
    }
    split.wait_held(point, LIMIT).unwrap();
    let before = written_by(&cluster);
    let clients = Clients::start(
        &cluster,
        "UPDATE items SET code = code + 1, more = id WHERE tenant = 'moves' AND id = $1",
    );
    let old = Clients::start(&cluster, "UPDATE items SET code = code + 1 WHERE tenant = 'moves' AND id = $1");
    // In a cutover the worker holds locks for which these wait.
    let change = |server: usize| {
        let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
        let change = format!("ALTER TABLE items ADD COLUMN {column}");
        std::thread::spawn(move || session.batch_execute(&change).unwrap())
    };
    let changes = [change(0), change(1)];
    wait::until("the changes to be asked for", LIMIT, || {
        let asks = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE items%'";
        let asked = |server: usize| -> shardmaster_tests::Result<i64> {
            Ok(cluster.servers[server].superuser(DATABASE)?.query_one(asks, &[])?.get(0))
        };
        Ok((changes.iter().all(JoinHandle::is_finished) || asked(0)? + asked(1)? > 0).then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    changes.into_iter().for_each(|change| change.join().unwrap());
    wait::until(
        "the change to be taken in",
        LIMIT,
        || Ok((!told(&cluster, &split).is_empty()).then_some(())),
    )
    .map_err(|e| format!("{point}: {e}; {}; {}", split.describe(), split.events().unwrap_or_default()))
    .unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    wait::until("clients to have written", LIMIT, || {
        let query = "SELECT count(*) FROM items WHERE tenant = 'moves' AND more = id AND id % 7 <> 0";
        let many: i64 = cluster.servers[1].superuser(DATABASE)?.query_one(query, &[])?.get(0);
        Ok((many > 20 || split.phase()? == "completed").then_some(()))
    })
    .unwrap();
    cuts_over(&split);
    let changes = [clients.stop(), old.stop()];
    assert!(changes.iter().all(|done| *done > 0), "{point}: {changes:?}");
    ends(&cluster, &split);
    let told = told(&cluster, &split);
    (before, written_by(&cluster), told)
}

/// Each of them is a cluster of its own. SHARDMASTER_SOAK tries them all.
fn some_of<'a>(points: &'a [&'a str], count: usize) -> &'a [&'a str] {
    if is_long_run() { points } else { &points[..count] }
}

#[test]
#[ignore = "make test-all: each point by itself; make test has ddl::schema_change::once_both_sides_are_alike_the_split_goes_on"]
fn a_column_added_under_load_copies_nothing_again() {
    for point in some_of(&["step_consumed", "cutover_locked", "backfill_begin", "cutover_begin"], 2) {
        let (before, after, told) = changed_at(point, "more int");
        assert_eq!(before.is_empty(), *point == "backfill_begin", "{point}");
        assert!(before.len() < after.len() || point.starts_with("cutover"), "{point}: {}", before.len());
        assert!(before.iter().all(|row| after.contains(row)), "{point}: {told:?}");
        assert!(!told.join(" ").contains("copied again"), "{point}: {told:?}");
    }
}

#[test]
#[ignore = "make test-all: load; make test has what_makes_copied_rows_wrong_copies_them_again"]
fn a_default_for_old_rows_under_load_copies_them_again() {
    for point in some_of(&["step_consumed", "cutover_locked"], 1) {
        let (before, after, told) = changed_at(point, "more int DEFAULT 7");
        assert!(!before.iter().any(|row| after.contains(row)), "{point}: {told:?}");
        assert!(told.join(" ").contains("copied again: public.items"), "{point}: {told:?}");
    }
}

/// Returns all rows of the moving tenants in both tables, with all their columns.
fn all_rows(cluster: &Cluster, server: usize, tenants: &[&str]) -> Vec<String> {
    let query = "SELECT to_jsonb(t)::text FROM orders t WHERE tenant_id = ANY ($1)
                 UNION ALL SELECT to_jsonb(t)::text FROM accounts t WHERE tenant_id = ANY ($1) ORDER BY 1";
    let rows = cluster.servers[server].superuser(DATABASE).unwrap().query(query, &[&tenants]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// All kinds of writes, while columns are added and changed before the copy, after it, and just before the fence.
#[test]
#[ignore = "make test-all: load; make test has ddl::schema_change::once_both_sides_are_alike_the_split_goes_on"]
fn an_application_goes_on_through_its_migrations() {
    let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    let mut workload = Workload::prepare(&cluster, load(Sharding::Directory(vec![0; 8]))).unwrap();
    let options = workload.options().clone();
    let tenants = options.moving_names();
    let migrate = |first: usize, change: &str| {
        by_owner(&cluster, first, change);
        by_owner(&cluster, 1 - first, change);
    };
    // This updates some rows in any order, whatever the column is called at that time.
    let note = |column: &str, text: &str| {
        let update = format!(
            "UPDATE orders SET {column} = '{text}' || ref WHERE tenant_id = 'tenant-00' AND ref % 10 = 3"
        );
        wait::until("the notes", LIMIT, || {
            let done = cluster.servers[0].superuser(DATABASE)?.execute(&update, &[]);
            Ok(done.ok().filter(|rows| *rows > 0))
        })
        .unwrap();
    };
    workload.start();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &tenants).unwrap();
    cluster.hold("backfill_begin").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("backfill_begin", LIMIT).unwrap();
    migrate(0, "ALTER TABLE orders ADD COLUMN note varchar(40)");
    note("note", "first ");
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    migrate(1, "ALTER TABLE accounts ADD COLUMN grade int");
    migrate(0, "ALTER TABLE orders RENAME COLUMN note TO remark");
    note("remark", "second ");
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("cutover_begin").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_begin", LIMIT).unwrap();
    migrate(0, "ALTER TABLE orders ALTER COLUMN remark TYPE text, ALTER COLUMN amount TYPE numeric(14,2)");
    note("remark", "third and last ");
    // The target is closed, and the source is fenced.
    cluster.hold("cutover_decided").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    let (here, there) = (all_rows(&cluster, 0, &tenants), all_rows(&cluster, 1, &tenants));
    assert!(here == there, "{} and {} rows", here.len(), there.len());
    assert!(here.iter().any(|row| row.contains("third and last")));
    let told = told(&cluster, &split);
    assert!(told.len() >= 3 && !told.join(" ").contains("copied again"), "{told:?}");
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    workload.wait_for(300, LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    workload.stop().unwrap();
    let report = workload.report(&cluster).unwrap();
    assert!(report.is_clean(), "{report}");
}
