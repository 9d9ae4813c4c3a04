//! The files of this repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without source files.
const FOREIGN: [&str; 6] = [".git", ".venv", "artifacts", "corpus", "node_modules", "target"];

/// Every file below a folder, in order.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    files
}

/// The name of a file relative to the root, with slashes.
pub(crate) fn name(root: &Path, file: &Path) -> String {
    let name = file.strip_prefix(root).unwrap_or(file);
    name.to_string_lossy().replace('\\', "/")
}

/// Reads a file as text.
pub(crate) fn text(file: &Path) -> Result<String, String> {
    let bytes = fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if !path.is_dir() {
            files.push(path);
        } else if !FOREIGN.iter().any(|foreign| name == *foreign) {
            collect(&path, files);
        }
    }
}
