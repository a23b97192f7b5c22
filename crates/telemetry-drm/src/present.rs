//! Whether there is anything to open.

use std::path::Path;

use crate::card::find;

/// Whether there is a GPU for the source below `root`. Names of links are looked at and nothing of a GPU is read, so that it may be asked again and
/// again where there is none.
pub fn is_present(root: &Path) -> bool {
    find(&root.join("sys/class/drm")).is_ok_and(|cards| !cards.is_empty())
}

#[cfg(test)]
mod tests {
    use drm_sim::{Tree, profiles};

    use super::*;

    #[test]
    fn only_cards_of_its_own_drivers_count() {
        let tree = Tree::new();
        assert!(!is_present(tree.root()) && !is_present(&tree.root().join("nowhere")));
        tree.add_other(0, "nvidia", Some("0000:01:00.0"));
        tree.add_other(1, "vkms", None);
        assert!(!is_present(tree.root()));
        for profile in [profiles::RX6900XT, profiles::A380_I915, profiles::A380_XE] {
            let card = tree.add(10, &profile);
            assert!(is_present(tree.root()), "{profile:?}");
            card.unplug();
            assert!(!is_present(tree.root()), "{profile:?}");
        }
    }
}
