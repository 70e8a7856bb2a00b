//! Databases of each encoding: which texts arrive unchanged, and which are refused.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::split::Split;
use shardmaster_tests::zoo::Case;
use shardmaster_tests::zoo::driver::{self, Driver, ShardDatabase};

/// Returns a table whose rows have every character of an encoding that has more than one byte or a high one.
fn letters(table: &str, encoding: &str, target: &str) -> Case {
    let mut case = Case::table(
        table,
        "CREATE TABLE {t} (tenant text, id int, v text, c \"char\", k text, PRIMARY KEY (tenant, k))",
    );
    let bytes = match encoding {
        "EUC_JP" | "EUC_KR" | "EUC_TW" | "EUC_JIS_2004" => {
            "SELECT set_byte(set_byte('\\xa1a1', 0, i), 1, j) FROM generate_series(161, 254) i, generate_series(161, 254) j"
        }
        _ => "SELECT set_byte('\\xa0', 0, i) FROM generate_series(160, 255) i",
    };
    // Only characters that the target's encoding has are inserted.
    case.fill = vec![format!(
        "CREATE FUNCTION {{t}}_of(b bytea) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN
             RETURN CASE WHEN convert(b, '{encoding}', '{target}') IS NOT NULL AND convert_from(b, '{encoding}') IS NOT NULL THEN encode(b, 'escape') END; EXCEPTION WHEN others THEN RETURN NULL; END $f$;
         INSERT INTO {{t}} SELECT tenant, row_number() OVER (), convert_from(b, '{encoding}'), 'c', 'k' || convert_from(b, '{encoding}')
           FROM (SELECT b FROM ({bytes}) x (b) WHERE {{t}}_of(b) IS NOT NULL) y, unnest('{{moves,stays}}'::text[]) tenant"
    )];
    for (moment, changes) in case.changes.iter_mut().enumerate() {
        *changes = vec![
            format!("UPDATE {{t}} SET v = v || v WHERE id % 3 = {moment}"),
            format!("UPDATE {{t}} SET k = k || 'x' WHERE id % 5 = {moment}"),
        ];
    }
    case
}

#[test]
fn encodings() {
    let cluster = driver::cluster().unwrap();
    let mut master = cluster.superuser().unwrap();
    let all = ["LATIN1", "EUC_JP", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "SQL_ASCII"];
    let places: Vec<[ShardDatabase; 2]> = all
        .iter()
        .map(|encoding| [0, 1].map(|server| ShardDatabase::create(&cluster, server, encoding).unwrap()))
        .collect();
    let [latin, japanese, korean, taiwanese, jis, ascii] = places.try_into().unwrap();
    let utf = [0, 1].map(|server| ShardDatabase::of(&cluster, server));
    let pairs = [
        ("latin", &latin[0], &latin[1], true),
        ("japanese", &japanese[0], &japanese[1], true),
        ("latin_utf", &latin[0], &utf[1], true),
        ("korean_utf", &korean[0], &utf[1], true),
        ("utf_korean", &utf[0], &korean[1], true),
        ("japanese_utf", &japanese[0], &utf[1], false),
        ("utf_japanese", &utf[0], &japanese[1], false),
        ("taiwanese", &taiwanese[0], &taiwanese[1], true),
        ("taiwanese_utf", &taiwanese[0], &utf[1], false),
        ("utf_taiwanese", &utf[0], &taiwanese[1], false),
        ("jis", &jis[0], &jis[1], true),
        ("jis_utf", &jis[0], &utf[1], false),
        ("utf_jis", &utf[0], &jis[1], false),
        ("jis_japanese", &jis[0], &japanese[1], false),
        ("ascii", &ascii[0], &ascii[1], true),
        ("ascii_utf", &ascii[0], &utf[1], false),
        ("utf_ascii", &utf[0], &ascii[1], false),
    ];
    // One pair of each kind: within an encoding, to and from UTF-8, refused, and without any encoding.
    let chosen = ["latin", "latin_utf", "utf_korean", "utf_jis", "ascii", "ascii_utf", "utf_ascii"];
    for (name, source, target, moves) in pairs {
        if !is_long_run() && !chosen.contains(&name) {
            continue;
        }
        master
            .batch_execute(&format!("SELECT shard_keyspace_add('{name}', 'directory', key_type => 'text')"))
            .unwrap();
        let drive = Driver {
            cluster: &cluster,
            keyspace: name,
            source: source.clone(),
            target: target.clone(),
            writer: "",
        };
        let mut case = letters(&format!("{name}_letters"), &source.encoding, &target.encoding);
        if source.encoding == "SQL_ASCII" {
            // These bytes are not text in any encoding.
            case.fill = vec![
                "INSERT INTO {t} SELECT tenant, i, E'\\xff\\xc3' || i, E'\\xe9', E'k\\xe9' || i FROM unnest('{moves,stays}'::text[]) tenant, generate_series(1, 30) i".into(),
            ];
        }
        if source.encoding == "UTF8" {
            case.fill = vec![
                "INSERT INTO {t} VALUES ('moves', 1, '한', 'c', '한'), ('stays', 1, '한', 'c', '한')".into(),
            ];
        }
        let cases = [case];
        let split = drive.plan(&cases, None).unwrap();
        if moves {
            drive.run(&split, &cases, driver::MOVES).map_err(|e| e.context(name)).unwrap();
        } else {
            let found = split.findings().unwrap();
            assert!(found.iter().any(|finding| finding.starts_with("encodings: ")), "{name}: {found:#?}");
        }
    }
    texts_of_other_encodings(&cluster, &japanese, &ascii);
    an_encoding_that_is_none_of_utf(&cluster);
}

/// The server converts between this encoding and UTF-8 in neither direction, so it cannot read the statements
/// of the mover's sessions.
fn an_encoding_that_is_none_of_utf(cluster: &Cluster) {
    let mut admin = cluster.servers[1].superuser("postgres").unwrap();
    admin
        .batch_execute("CREATE DATABASE mule TEMPLATE template0 ENCODING 'MULE_INTERNAL' LOCALE 'C'")
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let conninfo = cluster.servers[1].conninfo("mule", "postgres");
    master.execute("SELECT shard_add('mule', $1)", &[&conninfo]).unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('mule', 'directory', key_type => 'text'), shard_table_add('mule', 'tenant', 'mule');
             SELECT shard_assign('moves', 'shard_a', 'mule')",
        )
        .unwrap();
    let split =
        Split::plan_by(cluster, "SELECT shard_split_plan('shard_a', 'mule', '{moves}', keyspace => 'mule')")
            .unwrap();
    let found = split.findings().unwrap();
    let refused = |text: &String| {
        text.starts_with("target: connection: ")
            && text.contains("conversion between UTF8 and MULE_INTERNAL is not supported")
    };
    assert!(found.iter().any(refused), "{found:#?}");
}

/// The order or the hash of texts in these encodings is not that of UTF-8.
fn texts_of_other_encodings(cluster: &Cluster, japanese: &[ShardDatabase; 2], ascii: &[ShardDatabase; 2]) {
    let mut master = cluster.superuser().unwrap();
    let wrong = [
        ("range", japanese),
        ("range", ascii),
        ("hash", ascii),
        ("directory", ascii),
        ("directory", japanese),
    ];
    for (strategy, places) in wrong {
        let (source, target) = (&places[0].shard, &places[1].shard);
        let name = format!("{strategy}_{source}");
        let more = if strategy == "hash" {
            format!(", buckets => 4, shards => '{{{source}}}'")
        } else {
            String::new()
        };
        master
            .batch_execute(&format!(
                "SELECT shard_keyspace_add('{name}', '{strategy}', key_type => 'text'{more})"
            ))
            .unwrap();
        let plan = match strategy {
            "range" => {
                master
                    .batch_execute(&format!(
                        "SELECT shard_assign_range(NULL, NULL, '{source}', keyspace => '{name}')"
                    ))
                    .unwrap();
                format!(
                    "SELECT shard_split_plan_range('{source}', '{target}', NULL, 'm', keyspace => '{name}')"
                )
            }
            "hash" => {
                format!("SELECT shard_split_plan('{source}', '{target}', '{{1}}', keyspace => '{name}')")
            }
            _ => {
                master.execute("SELECT shard_assign('é', $1, keyspace => $2)", &[source, &name]).unwrap();
                format!("SELECT shard_split_plan('{source}', '{target}', '{{é}}', keyspace => '{name}')")
            }
        };
        let drive = Driver {
            cluster,
            keyspace: &name,
            source: places[0].clone(),
            target: places[1].clone(),
            writer: "",
        };
        let mut case = Case::table(&name, "CREATE TABLE {t} (tenant text, id int, PRIMARY KEY (tenant, id))");
        case.fill = Vec::new();
        let split = drive.plan(&[case], Some(&plan)).unwrap();
        let found = split.findings().unwrap();
        assert!(found.iter().any(|finding| finding.starts_with("source: encoding: ")), "{name}: {found:#?}");
    }
}
