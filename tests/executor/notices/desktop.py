"""A notification server: owns org.freedesktop.Notifications on the session bus, like a desktop that shows markup, and
writes each call of Notify as a line of JSON to the file that its argument names.

Prints `ready` when it is ready, and ends with its bus.
"""

import json
import sys

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call, new_method_return
from jeepney.io.blocking import open_dbus_connection

NAME = "org.freedesktop.Notifications"
BUS = DBusAddress("/org/freedesktop/DBus", bus_name="org.freedesktop.DBus", interface="org.freedesktop.DBus")
ANSWERS = {
    "GetServerInformation": ("ssss", ("desktop", "tests", "1", "1.2")),
    "GetCapabilities": ("as", (["body", "body-markup", "body-hyperlinks", "body-images", "actions"],)),
    "Notify": ("u", (1,)),
    "CloseNotification": (None, ()),
}

with open_dbus_connection(bus="SESSION") as bus, open(sys.argv[1], "a", encoding="utf-8") as shown:
    bus.send_and_get_reply(new_method_call(BUS, "RequestName", "su", (NAME, 4)))
    print("ready", flush=True)
    while True:
        try:
            call = bus.receive()
        except ConnectionResetError:
            break
        member = call.header.fields.get(HeaderFields.member)
        if call.header.message_type != MessageType.method_call or member not in ANSWERS:
            continue
        if member == "Notify":
            app, replaces, icon, title, body, actions, hints, _ = call.body
            what = {"app": app, "replaces": replaces, "icon": icon, "title": title, "body": body}
            what |= {"actions": actions, "hints": sorted(hints)}
            print(json.dumps(what, ensure_ascii=False), file=shown, flush=True)
        bus.send(new_method_return(call, *ANSWERS[member]))
