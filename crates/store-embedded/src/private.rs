//! Private files and directories (SEC-06): the store contains session ids and payloads, so only its owner may read it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Options for a file that only its owner may read.
pub(crate) fn file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Creates a directory that only its owner may read, and its parents likewise.
pub(crate) fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.recursive(true).create(dir)
}

/// The permissions of a directory that others may read.
#[cfg(unix)]
pub(crate) fn loose_mode(dir: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(dir).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(crate) fn loose_mode(_: &Path) -> Option<u32> {
    None // Windows uses access control lists, and user directories are private by default
}

/// Makes the content of a file durable.
pub(crate) fn sync_file(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::simulated_disk::sync_file(file) {
        return simulated;
    }
    file.sync_data()
}

/// Writes a file under a temporary name, syncs it and renames it. The caller syncs the directory.
pub(crate) fn write_file(
    path: &Path,
    temporary: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut options = file_options();
    let mut file = options.write(true).create(true).truncate(true).open(temporary)?;
    let written = write(&mut file)
        .and_then(|()| sync_file(&file))
        .and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(temporary); // frees its space if the disk is full
    }
    written
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    if let Some(simulated) = crate::simulated_disk::sync_folder(dir) {
        return simulated;
    }
    if cfg!(unix) {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}
