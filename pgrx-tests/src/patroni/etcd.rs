//! One etcd on the loopback, in which Patroni records the leader.

use super::free_port;
use crate::process::{Directory, Process};
use crate::{Result, wait};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(30);

pub struct Etcd {
    // It is stopped before its directory is removed.
    _process: Process,
    _directory: Directory,
    pub port: u16,
}

impl Etcd {
    pub fn start() -> Result<Etcd> {
        let directory = Directory::new("etcd")?;
        let (port, peers) = (free_port()?, free_port()?);
        let [client, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
        let mut etcd = Command::new("/usr/bin/etcd");
        etcd.current_dir(&*directory).arg("--data-dir").arg(directory.join("data"));
        etcd.args(["--name", "tests", "--log-level", "warn", "--logger", "zap"]);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("tests={peer}")]);
        let process = Process::start(&mut etcd, directory.join("log"))
            .map_err(|e| e.context("is etcd-server installed? `make ha` installs it"))?;
        std::fs::write(directory.join("etcd.pid"), process.pid().to_string())?;
        wait::until("etcd to listen", START_LIMIT, || Ok(TcpStream::connect(("127.0.0.1", port)).ok()))?;
        Ok(Etcd { _process: process, _directory: directory, port })
    }
}
