// Tells the person that a request came while the page is in the background: a mark on the tab's icon, and, if wanted, a
// notification and a sound.

import { find } from "./draw.js";
import { wants } from "./theme.js";

/** A short tone, so that no file is needed. */
function play() {
    const audio = new AudioContext();
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    volume.gain.setValueAtTime(0.15, audio.currentTime);
    volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.5);
    tone.frequency.value = 660;
    tone.connect(volume).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.5);
    tone.onended = () => audio.close();
}

/** Says how many wait and for which subtool, never what the request contains. */
export function notifyOf(tool, waiting) {
    if (!document.hidden) return;
    if (wants("notify") && Notification.permission === "granted") {
        const many = waiting === 1 ? "1 request waits" : `${waiting} requests wait`;
        const notification = new Notification("agent-magic-tool", { body: `${many}: ${tool}`, tag: "waiting" });
        notification.onclick = () => {
            window.focus();
            notification.close();
        };
    }
    if (wants("sound")) play();
}

/** Marks the icon of the tab while something waits. */
export function markIcon(waiting) {
    const link = find("link[rel=icon]");
    const wanted = waiting > 0 ? "/icon-waiting.svg" : "/icon.svg";
    if (link && link.getAttribute("href") !== wanted) link.setAttribute("href", wanted);
}
