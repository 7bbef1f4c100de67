package v4

apiVersion := "admission.k8s.io/v1"

kind := "AdmissionReview"

response := {"uid": input.request.uid, "allowed": true} if {
	count(deny) == 0
} else := {
	"uid": input.request.uid,
	"allowed": false,
	"status": {"code": 403, "message": concat("; ", deny)},
}

deny contains "label app is required" if {
	not input.request.object.metadata.labels.app
}

deny contains message if {
	some container in input.request.object.spec.containers
	container.securityContext.privileged
	message := sprintf("container %s is privileged", [container.name])
}

deny contains message if {
	some container in input.request.object.spec.containers
	endswith(container.image, ":latest")
	message := sprintf("container %s has the tag latest", [container.name])
}

deny contains message if {
	some container in input.request.object.spec.containers
	not is_limited(container)
	message := sprintf("container %s has no limits", [container.name])
}

is_limited(container) if {
	container.resources.limits.cpu
	container.resources.limits.memory
}
