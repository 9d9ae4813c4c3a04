//! The results of probes, stored beside the sessions (GW-25). With one of them a restart serves without a probe.

use super::ServerProfile;
use crate::settings::{EraSetting, ServerSettings, StoreSettings};
use rethread::{Revisions, ServerInfo, Version};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file of one server, and what its content must belong to.
pub(crate) struct ProbeMemory {
    path: PathBuf,
    /// Of the program, its arguments, its directory and the setting `era`.
    digest: String,
}

#[derive(Serialize, Deserialize)]
struct StoredProbe {
    digest: String,
    /// Seconds since 1970.
    time: u64,
    /// The versions that are spoken to the server.
    versions: Vec<String>,
    /// The newest version with sessions that the server speaks.
    #[serde(default)]
    legacy_version: Option<String>,
    server_info: StoredInfo,
    capabilities: serde_json::Value,
    instructions: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredInfo {
    name: String,
    version: String,
    title: Option<String>,
}

impl ProbeMemory {
    /// `None` if nothing is stored on this machine.
    pub(crate) fn new(store: &StoreSettings, server: &ServerSettings) -> Option<Self> {
        let StoreSettings::Embedded { data, .. } = store else {
            return None;
        };
        Some(ProbeMemory {
            path: data.join(format!("{}.probe.json", server.folder)),
            digest: digest(server),
        })
    }

    /// The stored result, if it belongs to the same command.
    pub(crate) fn load(&self) -> Option<ServerProfile> {
        self.read().map(|(profile, _)| profile)
    }

    /// The age of the stored result.
    pub(super) fn age(&self) -> Option<Duration> {
        let (_, time) = self.read()?;
        SystemTime::now().duration_since(UNIX_EPOCH + time).ok()
    }

    fn read(&self) -> Option<(ServerProfile, Duration)> {
        let stored: StoredProbe = serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()?;
        if stored.digest != self.digest {
            return None;
        }
        let versions: Vec<Version> = stored
            .versions
            .iter()
            .filter_map(|version| version.parse().ok())
            .collect();
        let mut info = ServerInfo::new(stored.server_info.name, stored.server_info.version);
        info.title = stored.server_info.title;
        info.capabilities = stored.capabilities;
        info.instructions = stored.instructions;
        let revisions = revisions(&versions)?;
        let profile = ServerProfile {
            revisions,
            legacy_version: stored.legacy_version.and_then(|version| version.parse().ok()),
            info,
        };
        Some((profile, Duration::from_secs(stored.time)))
    }

    /// Stores a result. A failure costs only the next probe.
    pub(crate) fn save(&self, profile: &ServerProfile) {
        let ServerProfile {
            revisions,
            legacy_version,
            info,
        } = profile;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stored = StoredProbe {
            digest: self.digest.clone(),
            time: now.as_secs(),
            versions: revisions
                .newest_first()
                .map(|version| version.as_str().to_owned())
                .collect(),
            legacy_version: legacy_version.map(|version| version.as_str().to_owned()),
            server_info: StoredInfo {
                name: info.name.clone(),
                version: info.version.clone(),
                title: info.title.clone(),
            },
            capabilities: info.capabilities.clone(),
            instructions: info.instructions.clone(),
        };
        if let Err(error) = write_file(&self.path, &stored) {
            tracing::debug!(%error, path = %self.path.display(), "the result of a probe is not stored");
        }
    }
}

/// Replaces the file in one step, so that a reader never finds half of it. Only the owner may read it, as the rest of the data.
fn write_file(path: &Path, stored: &StoredProbe) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
    }
    let temporary = path.with_extension("json.new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(stored)?)?;
    drop(file);
    std::fs::rename(temporary, path)
}

fn revisions(versions: &[Version]) -> Option<Revisions> {
    let has_sessions = versions.iter().any(|version| version.has_sessions());
    let is_stateless = versions.iter().any(|version| !version.has_sessions());
    match (has_sessions, is_stateless) {
        (true, true) => Some(Revisions::BOTH),
        (true, false) => Some(Revisions::LEGACY),
        (false, true) => Some(Revisions::MODERN),
        (false, false) => None,
    }
}

fn digest(server: &ServerSettings) -> String {
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| {
        // The length separates the parts.
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    add(server.command.as_os_str().as_encoded_bytes());
    for arg in &server.args {
        add(arg.as_bytes());
    }
    let cwd = server.cwd.clone().or_else(|| std::env::current_dir().ok());
    add(cwd.unwrap_or_default().as_os_str().as_encoded_bytes());
    let era: &[u8] = match server.era {
        EraSetting::Probe => b"probe",
        EraSetting::Legacy => b"legacy",
        EraSetting::Modern => b"modern",
        EraSetting::Dual => b"dual",
    };
    add(era);
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
