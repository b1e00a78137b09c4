(function (bridge, parts) {})
