//! `shard_report()` in a real browser: wide and narrow, light and dark, full and empty, and with names that
//! would be markup.

use postgres::Client;
use shardmaster_tests::browser::{self, Findings, View};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_owner, client, cluster, completed, plan, state_of, to_pending};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

const VIEWS: [View; 4] = [
    View { width: 1400, is_dark: false },
    View { width: 1400, is_dark: true },
    View { width: 400, is_dark: false },
    View { width: 400, is_dark: true },
];
const SECTIONS: [&str; 6] = ["attention", "shards", "keyspaces", "splits", "placement", "events"];
/// The elements of the page. It has no others.
const ELEMENTS: &str = "a article b bdi body caption dd details div dl dt figcaption figure footer h1 h2 h3 head header html i li \
    main meta nav ol p path section span style summary svg table tbody td th thead title tr ul";

fn report(master: &mut Client) -> String {
    master.query_one("SELECT shard_report()", &[]).unwrap().get(0)
}

/// Renders the page in each view, and returns the last findings.
fn look(page: &str) -> Findings {
    if let Ok(kept) = std::env::var("SHARDMASTER_KEEP_REPORT") {
        std::fs::write(kept, page).unwrap();
    }
    let mut all = VIEWS.map(|view| assert_fit(&browser::look(page, view).unwrap(), view)).into_iter();
    all.next_back().map(|()| browser::look(page, VIEWS[0]).unwrap()).unwrap()
}

fn assert_fit(found: &Findings, view: View) {
    let one = |name: &str| found.all(name).first().map(|value| (*value).to_owned()).unwrap_or_default();
    assert_eq!((one("done"), one("failed")), ("yes".to_owned(), String::new()), "{view:?}");
    assert_eq!(one("width"), view.width.to_string());
    let light: f64 = one("ground").split(' ').next().unwrap().parse().unwrap();
    assert_eq!(light < 128.0, view.is_dark, "{view:?}: {light}");
    let sections = SECTIONS.map(|name| format!("{name} true"));
    assert_eq!(found.all("section"), sections, "{view:?}");
    for wrong in ["scrolls", "hidden", "outside", "cut", "pale", "small", "loads"] {
        assert_eq!(found.all(wrong), [""; 0], "{view:?}: {wrong}");
    }
    let known: Vec<&str> = ELEMENTS.split_whitespace().collect();
    let strange: Vec<&str> = found.all("element").into_iter().filter(|name| !known.contains(name)).collect();
    assert_eq!(strange, [""; 0], "{view:?}");
    assert_eq!((one("hacked"), one("headings"), one("language")), ("no".into(), "1".into(), "en".into()));
    assert!(found.all("table").iter().all(|table| *table == "true"), "{view:?}");
}

#[test]
#[ignore = "make test-all: an empty page; make test has names_are_never_markup"]
fn a_master_without_anything_has_a_page() {
    let cluster = Cluster::servers(0, &[]).unwrap();
    let found = look(&report(&mut cluster.superuser().unwrap()));
    let text = found.all("text").join(" ");
    for says in [
        "There are none yet: shard_add() adds one.",
        "No split has been planned yet",
        "Nothing has happened yet.",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

/// One split follows its source for a while, one has failed, and one has cut over.
#[test]
#[ignore = "make test-all: figures over some time; make test has names_are_never_markup"]
fn splits_are_shown_with_their_times_and_figures() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let split = completed(&cluster);
    by_owner(&cluster, 0, "INSERT INTO items SELECT 'later', i, 'x', i FROM generate_series(1, 500) i");
    master
        .batch_execute(
            "SELECT shard_assign_many('{later,lost}', 'shard_a'); SELECT shard_keyspace_add('others', 'directory');
             SELECT shard_table_add('others', 'tenant', 'others'), shard_assign('lost', 'shard_a', 'others')",
        )
        .unwrap();
    let lost = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY['lost'], keyspace => 'others')";
    let lost = Split::plan_by(&cluster, lost).unwrap();
    lost.call("start_dual_write").unwrap();
    lost.failure(LIMIT).unwrap();
    let follows = Split::plan(&cluster, "shard_a", "shard_b", &["later"]).unwrap();
    to_pending(&follows);
    let mut writer = client(&cluster);
    let samples = "SELECT count(*) FROM shardmaster.split_sample WHERE split_id = $1";
    wait::until("some measurements", LIMIT, || {
        writer.batch_execute("UPDATE items SET val = val || 'y' WHERE tenant = 'later'")?;
        let count: i64 = master.query_one(samples, &[&follows.id])?.get(0);
        Ok((count > 4).then_some(()))
    })
    .unwrap();
    let found = look(&report(&mut master));
    let text = found.all("text").join(" ");
    let failure = lost.metric::<String>("error_message").unwrap();
    for says in [
        format!("Split {}: shard_a → shard_b", split.id),
        format!("It has failed: {failure}"),
        "It waits for: shard_split_finish".to_owned(),
        "completed for".to_owned(),
        "How long writers of moving rows waited at the cutover".to_owned(),
        "300 rows".to_owned(),
    ] {
        assert!(text.contains(&says), "{says}: {text}");
    }
    let drawn = found.all("drawing");
    // A copy that ended before the first measurement has no curve.
    let applied =
        drawn.iter().position(|words| words.starts_with("Changes applied a second over time: at most "));
    assert!(
        drawn.len() == 3 + applied.unwrap() && drawn.iter().all(|words| !words.contains("at most 0,")),
        "{drawn:?}"
    );
    let bad = text.split("What needs attention").nth(2).unwrap_or(&text);
    assert!(bad.contains(&format!("split {}", lost.id)), "{text}");
}

/// Each name is displayed as text and as nothing else.
#[test]
fn names_are_never_markup() {
    const HOSTILE: [&str; 5] = [
        "<script>window.hacked=1</script>",
        "</style><img src=x onerror=window.hacked=2>",
        "\"' onload='window.hacked=3' x=\"",
        "]]><!-- &amp; <svg/onload=window.hacked=4>",
        "</title></head><body onpageshow=window.hacked=5>",
    ];
    // Text behind these characters would be displayed from right to left.
    const TURNS: &str = "\u{202e}txt.exe \u{2066}\u{202d}";
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    for name in HOSTILE {
        let table = format!("\"{}\"", name.replace('"', "\"\""));
        master.execute("SELECT shard_add($1, kind => $1, capacity => 3)", &[&name]).unwrap();
        master.execute("SELECT shard_keyspace_add($1, 'directory')", &[&name]).unwrap();
        master.execute("SELECT shard_table_add($1, $2, $2)", &[&table, &name]).unwrap();
        master.execute("SELECT shard_assign($1, 'shard_a', $1, reason => $1)", &[&name]).unwrap();
        let plan = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY[$1], $1, $1)";
        master.execute(plan, &[&name]).unwrap();
    }
    master.execute("SELECT shard_assign($1, 'shard_a', reason => $1)", &[&TURNS]).unwrap();
    master.execute("SELECT shard_split_plan('shard_a', 'shard_b', ARRAY[$1], $1)", &[&TURNS]).unwrap();
    master.batch_execute("CREATE ROLE \"<b>who</b>\" SUPERUSER LOGIN").unwrap();
    let mut other = cluster.master.connect(DATABASE, "<b>who</b>").unwrap();
    other.batch_execute("SELECT shard_assign('a key', 'shard_a', reason => '<i>why</i>')").unwrap();
    let page = report(&mut master);
    let found = look(&page);
    let names = found.all("name");
    for name in HOSTILE {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for said in ["<b>who</b>", "<i>why</i>"] {
        assert!(names.iter().any(|name| name.contains(said)), "{said}: {names:?}");
    }
    assert!(!page.contains("<script") && !page.contains("<img"));
    // The page can be sent in any client encoding.
    assert!(page.contains("tenant &#65533;txt.exe") && page.is_ascii(), "{page}");
}

/// There are a thousand shards, a million keys, and hundreds of keyspaces and splits.
#[test]
#[ignore = "make test-all: a thousand shards; make test has names_are_never_markup"]
fn its_size_and_its_time_have_bounds() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_add('s' || i, kind => 'kind' || i % 200, capacity => i) FROM generate_series(1, 1000) i;
             SELECT shard_keyspace_add('k' || i, 'directory') FROM generate_series(1, 300) i;
             INSERT INTO shardmaster.routing_version (keyspace, version) VALUES ('k1', 1);
             INSERT INTO shardmaster.routing_entry (keyspace, key, read_shard, write_shard, valid_from)
             SELECT 'k1', i::text, 's' || 1 + i % 1000, 's' || 1 + i % 1000, 1 FROM generate_series(1, 1000000) i;
             INSERT INTO shardmaster.split_plan (keyspace, source_shard, target_shard, tenants, token, phase)
             SELECT 'k1', 's1', 's2', array_fill(repeat('long', 1000), ARRAY[50]), 'token', 'planning' FROM generate_series(1, 300);
             INSERT INTO shardmaster.split_event (split_id, detail) SELECT id, repeat('word ', 1000) FROM shardmaster.split_plan",
        )
        .unwrap();
    let began = Instant::now();
    let page = report(&mut master);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(page.len() < 300_000, "{} bytes", page.len());
    let found = look(&page);
    let text = found.all("text").join(" ");
    for says in [
        "952 shards that are less full are not shown.",
        "251 keyspaces are not shown.",
        "288 older splits are not shown.",
        "151 kinds are not shown.",
        "1M",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn whoever_may_look_at_statistics_may_look_at_it() {
    let cluster = cluster(&[]);
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "CREATE ROLE looks LOGIN; GRANT pg_monitor TO looks;
             CREATE ROLE routes LOGIN; SELECT shard_grant('routes', 'client')",
        )
        .unwrap();
    let mut looks = cluster.master.connect(DATABASE, "looks").unwrap();
    assert!(report(&mut looks).starts_with("<!DOCTYPE html>"));
    assert_eq!(looks.query("TABLE shard_guards", &[]).unwrap().len(), 0);
    let mut routes = cluster.master.connect(DATABASE, "routes").unwrap();
    for refused in ["SELECT shard_report()", "TABLE shard_guards"] {
        assert_eq!(state_of(&routes.query(refused, &[]).unwrap_err()), "42501");
    }
}

/// The card of a split shows its state, in each of its states, and the page can be sent in any client encoding.
#[test]
#[ignore = "make test-all: each state of a split; make test has names_are_never_markup"]
fn a_card_says_what_its_split_is_at() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SET client_encoding = 'UTF8'").unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    let mut says = |words: &[&str], not: &[&str]| {
        let page = report(&mut master);
        assert!(page.is_ascii());
        let card = page.split("<article").nth(1).unwrap_or_default();
        for word in words {
            assert!(card.contains(word), "{word}: {card}");
        }
        for word in not {
            assert!(!card.contains(word), "{word}: {card}");
        }
    };
    cluster.hold("cutover_decided").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    assert_eq!(split.metric::<Option<String>>("next_call").unwrap(), None);
    says(&["writers wait, completed", "Writers of the moving rows have waited since "], &[]);
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    says(&["<span class=\"pill ok\">completed"], &["Writers of the moving rows have waited"]);
    cluster.hold("reverse_captured").unwrap();
    split.call("reverse").unwrap();
    wait::until("its reverse split to begin", LIMIT, || {
        let query = "SELECT count(*) FROM shard_splits";
        Ok((cluster.superuser()?.query_one(query, &[])?.get::<_, i64>(0) == 2).then_some(()))
    })
    .unwrap();
    let id = split.id;
    let page = cluster.superuser().unwrap().query_one("SELECT shard_report()", &[]).unwrap();
    assert!(page.get::<_, &str>(0).contains("being taken back, completed"), "split {id}");
    cluster.fault("").unwrap();
    split.wait("reversed", LIMIT).unwrap();
    let page = cluster.superuser().unwrap().query_one("SELECT shard_report()", &[]).unwrap();
    let card = page.get::<_, String>(0);
    let card =
        card.split("<article").find(|card| card.contains(&format!("Split {id}: "))).unwrap().to_owned();
    assert!(card.contains("<span class=\"pill off\">taken back"), "{card}");
}

#[test]
#[ignore = "make test-all: a finish; make test has names_are_never_markup"]
fn a_finish_is_shown_as_one() {
    let cluster = cluster(&[]);
    let split = completed(&cluster);
    cluster.hold("finish_batch").unwrap();
    split.call("finish").unwrap();
    split.wait_held("finish_batch", LIMIT).unwrap();
    assert!(report(&mut cluster.superuser().unwrap()).contains("finishing, completed"));
    cluster.fault("").unwrap();
    split.finish(LIMIT).unwrap();
}
