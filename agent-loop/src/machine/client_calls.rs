//! Whether a turn is for the client: it calls nothing but tools that the client performs itself.

use super::Machine;

impl Machine {
    pub(super) fn calls_only_the_client(&self) -> bool {
        let is_of_client = |name: &String| self.settings.client_tools.contains(name);
        let calls = self.last_calls();
        !calls.is_empty() && calls.iter().all(|call| is_of_client(&call.name))
    }
}
