//! Where things are, as the scripts say it.

use crate::cluster::{self, DATABASE};
use crate::{Result, wait};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Directory of the programs of the PostgreSQL under test.
pub fn bindir() -> Result<PathBuf> {
    required("SHARDMASTER_BINDIR")
}

/// Directory of the programs of another major version: a server's, no client's.
pub fn bindir_of(major: u32) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_MAJORS")?.join(major.to_string()).join("bin"))
}

/// What the compiler has to do for another version, beside tests.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// Directory of the programs of another major version for which the extension is built, as soon as it is: tests run while
/// the script builds.
pub fn bindir_built(major: u32) -> Result<PathBuf> {
    let built = required("SHARDMASTER_BUILT")?.join(major.to_string());
    let failed = built.with_extension("failed");
    wait::until(&format!("the build for PostgreSQL {major}"), BUILD_LIMIT, || {
        if failed.exists() {
            return Err(format!("the build for PostgreSQL {major} failed").into());
        }
        Ok(built.exists().then(|| built.join("bin")))
    })
}

/// Whether this is a run of hours, of all that there is: `make test-all`.
pub fn is_long_run() -> bool {
    std::env::var_os("SHARDMASTER_SOAK").is_some()
}

/// How many of several cases are tried: all of them in a run of hours.
pub fn at_most(count: usize) -> usize {
    if is_long_run() { usize::MAX } else { count }
}

/// Whether the server under test comes in a package that may lack what others have.
pub fn may_lack() -> bool {
    std::env::var_os("SHARDMASTER_MAY_LACK").is_some()
}

/// Directory below which servers are made.
pub fn run_dir() -> Result<PathBuf> {
    required("SHARDMASTER_RUN_DIR")
}

/// A program of this crate, by name.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_PROGRAMS")?.join(name))
}

fn required(variable: &str) -> Result<PathBuf> {
    let value = std::env::var_os(variable)
        .ok_or_else(|| format!("{variable} is not set; run `make test`, `make demo` or `make bench`"))?;
    Ok(PathBuf::from(value))
}

/// Runs a program to its end; its output is the error if it fails.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(format!("{command:?} failed: {}\n{out}{err}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What servers are copied from: a cluster that is made once in a run for the programs in a directory, without WAL, which each
/// copy makes anew.
#[derive(Clone, Copy)]
pub enum Template {
    /// With the database and the roles that all of them have.
    Plain,
    /// And with the extension, its identity, and rights of clients.
    Master,
}

impl Template {
    fn name(self) -> &'static str {
        match self {
            Template::Plain => "template",
            Template::Master => "master",
        }
    }

    /// The cluster, which the first one who asks has to make.
    fn made(self, bindir: &Path) -> Result<PathBuf> {
        let name = bindir.to_string_lossy().replace('/', "-");
        let template = run_dir()?.join(format!("{}{name}", self.name()));
        if template.exists() {
            return Ok(template);
        }
        // Another test may be at it: each would make its own, at the price of a dozen of copies.
        let making = File::create(run_dir()?.join(format!("{}.lock", self.name())))?;
        making.lock()?;
        if template.exists() {
            return Ok(template);
        }
        let own = run_dir()?.join(format!("{}.made{name}", self.name()));
        match self {
            Template::Plain => {
                initdb(bindir, &own)?;
                // What has a number below 16384, pg_dump and pg_upgrade take for the server's own; a server without others
                // gives out such.
                run(Command::new(bindir.join("pg_resetwal")).args(["-f", "-o", "16384"]).arg(&own))?;
                let version = std::fs::read_to_string(own.join("PG_VERSION"))?;
                let version = version.trim().parse().map_err(|e| format!("PG_VERSION {version}: {e}"))?;
                single(bindir, &own, "postgres", &[], &cluster::preparations(version))?;
            }
            Template::Master => {
                copy(&Template::Plain.made(bindir)?, &own)?;
                run(Command::new(bindir.join("pg_resetwal")).arg("-f").arg(&own))?;
                let database = format!("shardmaster.database={DATABASE}");
                let settings = ["shared_preload_libraries=shardmaster", database.as_str()];
                single(bindir, &own, DATABASE, &settings, &cluster::EXTENSION.map(str::to_owned))?;
            }
        }
        forget_wal(&own)?;
        std::fs::rename(&own, &template)?;
        Ok(template)
    }
}

/// Statements by a server without others, which reads one a line.
fn single(
    bindir: &Path,
    data: &Path,
    database: &str,
    settings: &[&str],
    statements: &[String],
) -> Result<()> {
    let file = data.join("prepare.sql");
    let lines: Vec<String> = statements.iter().map(|statement| statement.replace('\n', " ")).collect();
    std::fs::write(&file, lines.join(";\n") + "\n")?;
    let mut server = Command::new(bindir.join("postgres"));
    server.args(["--single", "-c", "exit_on_error=on", "-c", "log_min_messages=error"]);
    for setting in settings {
        server.args(["-c", setting]);
    }
    run(server.arg("-D").arg(data).arg(database).stdin(Stdio::from(File::open(&file)?)))?;
    Ok(std::fs::remove_file(file)?)
}

fn forget_wal(data: &Path) -> Result<()> {
    for entry in std::fs::read_dir(data.join("pg_wal"))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to)).map(drop)
}

/// Makes an empty cluster with the programs in `bindir`.
pub fn initdb(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data)).map(drop)
}

/// The cluster that pg_upgrade fills: since PostgreSQL 18 one would have checksums,
/// which the older cluster has not.
pub fn initdb_for_upgrade(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data).arg("--no-data-checksums")).map(drop)
}

fn initdb_command(bindir: &Path) -> Command {
    let mut initdb = Command::new(bindir.join("initdb"));
    // Of the usual size a segment is a third of what is copied for each server.
    initdb.args([
        "--no-sync",
        "--wal-segsize=1",
        "-A",
        "trust",
        "-U",
        "postgres",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "-D",
    ]);
    initdb
}

/// Copies a template to `data` and gives the copy a system identifier of its own:
/// servers that look like clones of each other would not be like real ones. Packages of a server
/// alone cannot do that: with them each cluster is made from the beginning.
pub fn copy_template(template: Template, bindir: &Path, data: &Path, number: u32) -> Result<()> {
    if !bindir.join("pg_resetwal").exists() {
        return initdb(bindir, data);
    }
    copy(&template.made(bindir)?, data)?;
    let control = data.join("global/pg_control");
    let mut bytes = std::fs::read(&control)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let identifier =
        (now.as_secs() << 32) | (u64::from(std::process::id() & 0xf_ffff) << 12) | u64::from(number);
    bytes[..8].copy_from_slice(&identifier.to_ne_bytes());
    std::fs::write(&control, bytes)?;
    // Writes the control file with a valid checksum and WAL of this identifier.
    run(Command::new(bindir.join("pg_resetwal")).arg("-f").arg(data))?;
    Ok(())
}
