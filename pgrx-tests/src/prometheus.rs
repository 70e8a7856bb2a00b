//! A real Prometheus that reads the master through two real exporters, with the project's own queries and alerts.

use crate::process::{Directory, Process};
use crate::server::Server;
use crate::{Result, wait};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

pub const QUERIES: &str = include_str!("../../monitoring/postgres_exporter.yaml");
pub const SQL_QUERIES: &str = include_str!("../../monitoring/sql_exporter.yaml");
pub const ALERTS: &str = include_str!("../../monitoring/alerts.yaml");
pub const DASHBOARD: &str = include_str!("../../monitoring/grafana.json");
const RENAMES: &str = include_str!("../../monitoring/sql_exporter_names.yaml");
const LIMIT: Duration = Duration::from_secs(60);

pub struct Prometheus {
    port: u16,
    // They are stopped before their directory is removed.
    _processes: Vec<Process>,
    _directory: Directory,
}

impl Prometheus {
    /// Starts both exporters as this role, and the alerts with intervals of a second.
    pub fn start(master: &Server, database: &str, role: &str) -> Result<Prometheus> {
        let directory = Directory::new("prometheus")?;
        let (exporter, sql, port) = (free_port()?, free_port()?, free_port()?);
        let file = |name: &str| directory.join(name).display().to_string();
        fs::write(file("queries.yaml"), QUERIES)?;
        fs::write(file("alerts.yaml"), impatient(ALERTS))?;
        let socket = master.conninfo(database, role);
        let url = format!("postgres://{role}@/{database}?host={}&sslmode=disable", host_of(&socket)?);
        let jobs = SQL_QUERIES.replace("postgres://monitor@localhost:5432/app?sslmode=disable", &url);
        fs::write(file("sql.yaml"), jobs.replace("interval: \"15s\"", "interval: \"1s\""))?;
        fs::write(file("prometheus.yaml"), configuration(exporter, sql))?;
        let address = |port: u16| format!("--web.listen-address=127.0.0.1:{port}");
        let mut commands = [
            Command::new("prometheus-postgres-exporter"),
            Command::new("prometheus-sql-exporter"),
            Command::new("prometheus"),
        ];
        commands[0]
            .env("DATA_SOURCE_NAME", format!("{socket} sslmode=disable"))
            .args(["--disable-default-metrics", "--disable-settings-metrics", &address(exporter)])
            .arg(format!("--extend.query-path={}", file("queries.yaml")));
        commands[1].args([&format!("-config.file={}", file("sql.yaml")), &address(sql)[1..].to_owned()]);
        commands[2]
            .args([format!("--config.file={}", file("prometheus.yaml")), address(port)])
            .arg(format!("--storage.tsdb.path={}", file("data")));
        let logs = ["exporter", "sql", "prometheus"].map(|name| directory.join(format!("{name}.log")));
        let started: Result<Vec<Process>> =
            commands.iter_mut().zip(logs).map(|(command, log)| Process::start(command, log)).collect();
        let prometheus = Prometheus { port, _processes: started?, _directory: directory };
        wait::until("Prometheus to answer", LIMIT, || Ok(prometheus.ask("up").ok()))?;
        Ok(prometheus)
    }

    /// Returns the answer to a query, as JSON.
    pub fn ask(&self, query: &str) -> Result<String> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        get(self.port, &format!("/api/v1/query?query={escaped}"))
    }

    /// Waits until an alert fires, by the metrics of a job if the alert belongs to one.
    pub fn wait_firing(&self, alert: &str, job: Option<&str>) -> Result<()> {
        let of_job = job.map(|job| format!(",\"job\":\"{job}\"")).unwrap_or_default();
        let wanted = format!("{{\"alertname\":\"{alert}\"{of_job}}}");
        let mut seen = String::new();
        let fires = wait::until(&format!("{alert} to fire"), LIMIT, || {
            seen = self.ask("count by (alertname, job) (ALERTS{alertstate=\"firing\"})")?;
            Ok(seen.contains(&wanted).then_some(()))
        });
        fires.map_err(|error| error.context(&seen))
    }
}

/// Replaces the minutes in the rules by the seconds that this test has.
fn impatient(alerts: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(time) => line.replace(time, "1s"),
        None => line.replace("_seconds > 60", "_seconds > 1").replace("_seconds > 300", "_seconds > 1"),
    };
    alerts.lines().map(|l| line(l) + "\n").collect()
}

fn configuration(exporter: u16, sql: u16) -> String {
    format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
         rule_files: [alerts.yaml]\n\
         scrape_configs:\n\
         \x20 - job_name: postgres\n    static_configs: [{{ targets: ['127.0.0.1:{exporter}'] }}]\n\
         \x20 - job_name: sql\n    static_configs: [{{ targets: ['127.0.0.1:{sql}'] }}]\n{RENAMES}"
    )
}

fn host_of(conninfo: &str) -> Result<&str> {
    let host = conninfo.split(' ').find_map(|word| word.strip_prefix("host="));
    host.ok_or_else(|| format!("no host in {conninfo}").into())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn get(port: u16, target: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(answer.into()),
    }
}
